// The workload of a run file that `lockstep train` or `compare` wrote, on another device.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "engine/trace/breakdown.h"
#include "simulate/predict/step.h"
#include "simulate/predict/topology.h"
#include "tools/report/run_reader.h"

namespace lockstep::tools {

struct RunWorkload {
  std::string model;  // as --model said
  std::string dataset;
  std::string measured_on;  // the GPU's name, or device_name() of the CPU
  std::size_t rows_per_epoch = 1;
  // The data set's rows, or, of a file that doesn't say them, the rows that the run trained on in
  // an epoch: fewer after --steps, and whole batches.
  enum class Epoch { data_set, run } epoch = Epoch::data_set;
  FileWorkload step;               // as it was measured
  bool shares_statistics = false;  // --sync-batch-norm
  // Of the run's step on one device of the same kind, where it had one: what of it is no layer's.
  std::optional<trace::StepBreakdown> single = {};
};

// What a logical device of the CPU is called: "Intel(R) Xeon(R) Processor, 1 thread".
std::string device_name(const std::string& cpu, std::size_t threads_per_device);

// Throws Error{Io} as read_run_file(), and for a file without a workload.
RunWorkload read_run_workload(const std::string& path);

// The same step, of `batch` rows, on a topology's device. Where it was measured on a device of that
// name, as measured, scaled: with the rows, or, where lockstep calibrate measured layers there, as
// theirs; then the step is as long as the run's was on one device. Else by predict/kernel_cost.h:
// no measured time enters. Throws Error{Usage} for a convolutional net there whose file lacks its
// sizes.
predict::Workload workload_on(const RunWorkload& run, const predict::DeviceProfile& device,
                              double batch);
bool is_measured_on(const RunWorkload& run, const predict::DeviceProfile& device);

}  // namespace lockstep::tools
