// Measures one training step, layer by layer: the part of the run file that the predictor starts
// from.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "simulate/predict/kernel_cost.h"
#include "tools/run/task.h"

namespace lockstep::tools {

struct FileLayer {
  std::string name;
  double forward_seconds = 0;
  double backward_seconds = 0;
  std::size_t parameter_bytes = sizeof(float);
  // The layer's work for one row of the batch.
  std::optional<predict::LayerShape> product = {};
  std::optional<predict::LayerShape> attention = {};  // its two products, as one
  std::vector<double> forward_bytes = {};  // bytes that each other kernel reads and writes
  std::vector<double> backward_bytes = {};
  std::vector<std::size_t> buffer_bytes = {};  // each buffer's, for any number of rows
  double output_bytes = 0;
};

// One step on one device, layer by layer.
struct FileWorkload {
  std::size_t batch = 1;
  double input_bytes_per_row = 0;
  double host_seconds_per_op = 0;
  double optimizer_seconds = 0;
  std::vector<FileLayer> layers;              // in the model's order, at least one
  std::vector<std::string> ready_order = {};  // parameters, as their gradients become ready
  std::size_t rows_per_epoch = 1;             // the data set's
};

// Measures a step on one device with all its threads, layer by layer (layer_recorder.h).
FileWorkload measure_workload(const TrainingTask& task, Device device, double optimizer_seconds);

// The workload as the run file holds it.
nlohmann::ordered_json workload_json(const FileWorkload& step);

}  // namespace lockstep::tools
