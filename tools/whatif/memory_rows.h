// The memory of predicted rows: will it fit, and with which batch.
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "simulate/predict/memory.h"
#include "tools/whatif/own_memory.h"
#include "tools/whatif/predicted_rows.h"

namespace lockstep::tools {

// A step's memory on one device for any batch, from one of three sources:
//   one of this engine's models   its step is run here (own_memory.h)
//   a family (family.h)           published formulas
//   a number of parameters        their states alone; activations are not known
class StepMemory {
 public:
  // optimizer: of families and parameters; this engine's models have SGD with momentum.
  StepMemory(const PredictionTask& task, predict::StateOptimizer optimizer);

  struct Row {
    predict::DeviceMemory memory;
    std::size_t largest_batch = 0;  // the most samples; 0: none fits, or unknown
  };
  // samples: at a time, of a micro-batch; of a pipeline the whole batch's, for each device.
  Row row(predict::Strategy strategy, std::size_t num_devices, std::size_t samples);
  bool knows_activations() const { return net_.has_activations; }
  // Where the figures come from.
  std::string source() const;
  // The parts of DeviceMemory::workspace.
  std::string other() const;

 private:
  Row own_row(const predict::MemoryOptions& options, std::size_t samples);

  predict::NetMemory net_;
  predict::MemoryOptions options_;
  std::optional<std::size_t> micro_batches_;
  std::size_t accumulate_;
  double memory_bytes_;  // of a device
  std::optional<OwnMemory> own_;
};

// The part of a row that StepMemory::row() takes.
std::size_t samples_at_a_time(const PredictionTask& task, const PredictedRow& row);

// A table of the rows, a line for each mode with the number of devices on which it fits, and the
// source. Adds "memory_bytes" and "largest_batch" to their JSON.
std::vector<std::string> memory_lines(const PredictionTask& task, StepMemory& memory,
                                      std::span<const PredictedRow> rows,
                                      nlohmann::ordered_json& json_rows);

}  // namespace lockstep::tools
