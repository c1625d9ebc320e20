// What one training step consists of: the part of the run file that the predictor starts from.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "tools/report/run_reader.h"
#include "tools/training/task.h"

namespace lockstep::tools {

// Measures on one device with all its threads, layer by layer. A layer is a Linear with the
// activation after it; medians of several runs.
FileWorkload measure_workload(const TrainingTask& task, Device device, double optimizer_seconds);

// As the run file has it.
nlohmann::ordered_json workload_json(const FileWorkload& step);

}  // namespace lockstep::tools
