// Turns the workload of a run file, from `lockstep train` or `compare`, into work on another
// device.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "simulate/predict/step.h"
#include "simulate/predict/topology.h"
#include "tools/record/run_reader.h"

namespace lockstep::tools {

struct RunWorkload {
  std::string model;  // as --model said
  std::string dataset;
  std::string measured_on;  // the GPU's name, or device_name() of the CPU
  std::size_t rows_per_epoch = 1;
  FileWorkload step;                            // as measured
  bool shares_statistics = false;               // --sync-batch-norm
  std::optional<std::string> interrupted = {};  // as RunFile's
};

// The name of a logical device of the CPU: "Intel(R) Xeon(R) Processor, 1 thread".
std::string device_name(const std::string& cpu, std::size_t threads_per_device);

// Throws what read_run_file() does, and Error{Io} for a file without a workload.
RunWorkload read_run_workload(const std::string& path);

// The same step with `batch` rows on a topology's device. If the run was measured on a device of
// that name, its layers' times are scaled with the rows. Else the times come from
// predict/kernel_cost.h and no measured time enters.
predict::Workload workload_on(const RunWorkload& run, const predict::DeviceProfile& device,
                              double batch);
bool is_measured_on(const RunWorkload& run, const predict::DeviceProfile& device);

}  // namespace lockstep::tools
