// The lines and files of `train`, the same for ranks that are threads or processes.
#pragma once

#include <cstddef>
#include <cstdio>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/nn/state_dict.h"
#include "tools/record/measured_row.h"
#include "tools/text/status_line.h"

namespace lockstep::tools {

// Tables and progress go to standard output, unless --json - takes it.
std::FILE* progress_stream(const TrainingFlags& flags);

// "mlp:64-256-10 on digits: 1500 training rows, ...", and notes on how it is trained.
void print_task(const TrainingFlags& flags, const TrainingTask& task,
                const DevicePlacement& placement);

// True if the steps must be recorded (engine/trace), for a timeline or the run file's breakdown.
bool needs_recording(const TrainingFlags& flags);

// Prints "epoch 3: 12.1 ms, loss 0.0123", shows the progress in between (of a text also a line for
// some steps, with what build-nanogpt prints), warns of a loss that explodes, and writes --log.
// flags and progress must live as long as the observer.
TrainingObserver report_progress(const TrainingFlags& flags, const TrainingTask& task,
                                 Progress& progress);

// Prints accuracy and the weights' digest; writes --save, --trace and --json. `measured_on`: the
// device of this process on which the run file's workload is measured.
void report_training(const TrainingFlags& flags, const std::vector<std::string>& command,
                     const TrainingTask& task, const MeasuredRow& measured, Device measured_on);

// The exit code of rank 0 after report_training(): 0, or 128 + the signal that has come. Then it
// says which files were written.
int end_training(const TrainingFlags& flags, const TrainingTask& task,
                 const TrainingResult& result);

// Prints the warning as a line on stderr. Copies watch for themselves.
std::function<void(std::size_t step, double loss)> warn_of_explosion(std::size_t num_classes);

// SHA-256, in hexadecimal, of all tensors' bytes in the order of their names.
std::string weights_digest(const nn::StateDict& weights);

}  // namespace lockstep::tools
