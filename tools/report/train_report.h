// What `train` says and writes, whoever the ranks were.
#pragma once

#include <cstdio>
#include <string>
#include <vector>

#include "engine/trace/recorder.h"
#include "tools/report/contention.h"
#include "tools/report/progress.h"
#include "tools/report/run_file.h"
#include "tools/training/loop.h"

namespace lockstep::tools {

// Tables and progress go to standard output, unless --json - takes it.
std::FILE* progress_stream(const TrainingFlags& flags);

// "mlp:64-256-10 on digits: 1500 training rows, ...", and what a reader has to know of it.
void print_task(const TrainingFlags& flags, const TrainingTask& task,
                const DevicePlacement& placement);

// Whether the steps are to be recorded (engine/trace): for a timeline, or the run file's breakdown.
bool needs_recording(const TrainingFlags& flags);

// Prints "epoch 3: 12.1 ms, loss 0.0123" and looks at the devices after each epoch, shows the
// progress in between, warns of a loss that explodes, and writes --log. flags, probe and progress
// must live as long as the observer.
TrainingObserver report_progress(const TrainingFlags& flags, const TrainingTask& task,
                                 ContentionProbe& probe, Progress& progress);

// Prints accuracy and the weights' digest; writes --save, --trace and --json. `measured_on`: the
// device of this process on which the run file's workload is measured.
void report_training(const TrainingFlags& flags, const std::vector<std::string>& command,
                     const TrainingTask& task, const RunRow& row, const trace::Recording& recording,
                     Device measured_on);

}  // namespace lockstep::tools
