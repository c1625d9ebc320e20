// What one training step consists of: the part of the run file that the predictor starts from.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "tools/training/task.h"

namespace lockstep::tools {

// Measures on one device with all its threads, layer by layer: {"batch", "rows_per_epoch" (of the
// data set), "input_bytes_per_row", "host_seconds_per_op", "optimizer_seconds", "layers": [{"name",
// "forward_seconds", "backward_seconds", "parameter_bytes"}], "ready_order": [...]}. A layer is a
// Linear with the activation after it; medians of several runs.
nlohmann::ordered_json measure_workload(const TrainingTask& task, Device device,
                                        double optimizer_seconds);

}  // namespace lockstep::tools
