// The workload of a run file that `lockstep train` or `compare` wrote, on another device.
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "engine/predict/step.h"
#include "engine/predict/topology.h"

namespace lockstep::tools {

struct RunLayer {
  std::string name;
  double forward_seconds = 0;
  double backward_seconds = 0;
  std::size_t parameter_bytes = 0;
};

struct RunWorkload {
  std::string model;  // as --model said
  std::string dataset;
  std::string measured_on;  // the GPU's name, or "cpu"
  std::size_t batch = 1;    // rows of the measured step
  std::size_t rows_per_epoch = 1;
  double input_bytes_per_row = 0;
  double host_seconds_per_op = 0;
  double optimizer_seconds = 0;
  std::vector<RunLayer> layers;  // in the model's order
};

// Throws Error{Io} that names file and line: truncated, of another schema or program, values that
// are missing or no such numbers, a ready order that names other layers.
RunWorkload read_run_workload(const std::string& path);

// The same step, of `batch` rows, on a topology's device. Where it was measured on a GPU of that
// name, as measured, the rows scaled. Else each layer takes what its arithmetic takes at 70 % of
// the device's peak, or its weights' memory traffic at 75 % where that is longer, and a launch per
// kernel: no measured time enters. Forward is one product, backward two (the first layer's: one).
predict::Workload workload_on(const RunWorkload& run, const predict::DeviceProfile& device,
                              double batch);
bool is_measured_on(const RunWorkload& run, const predict::DeviceProfile& device);

// The part "workload" of a run file again.
nlohmann::ordered_json workload_json(const RunWorkload& run);

}  // namespace lockstep::tools
