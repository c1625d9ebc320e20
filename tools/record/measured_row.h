// Trains a row, and finds out if other processes disturbed its measurement.
#pragma once

#include "tools/record/run_file.h"
#include "tools/run/ranks.h"

namespace lockstep::tools {

// A row before it is trained. Its threads_per_device is the current setting.
RunRow planned_row(const TrainingTask& task, const DevicePlacement& placement);

struct MeasuredRow {
  RunRow row;
  DevicePlacement placement;   // of all ranks
  trace::Recording recording;  // if it was asked for
};

// Trains as train() does (run/ranks.h), and looks before it and after each epoch who else uses the
// devices. With a job only rank 0 gets a row.
enum class Recorded { no, yes };
MeasuredRow measure_row(const TrainingTask& task, const DevicePlacement& placement,
                        TrainingObserver observer, Recorded recorded, RankJob* job = nullptr);

}  // namespace lockstep::tools
