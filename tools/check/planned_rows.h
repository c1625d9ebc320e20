// The rows that each step should train on, and the check of a rank's batch against them.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "engine/data/data_loader.h"
#include "engine/plan/scatter.h"
#include "tools/run/task.h"

namespace lockstep::tools {

class PlannedRows {
 public:
  // REQUIRES: the task outlives it.
  explicit PlannedRows(const TrainingTask& task) : task_(task) {}

  // The rows of the global batch, in order.
  std::vector<std::size_t> of_step(std::size_t step);

  // Says what is wrong with a rank's place in the global batch of so many rows, if anything.
  static std::optional<std::string> wrong_place(const data::Batch& batch, plan::ScatterPart planned,
                                                std::size_t num_rows);
  // The same for the rows themselves: features and labels.
  std::optional<std::string> wrong_row(const data::Batch& batch, std::size_t step);

 private:
  const TrainingTask& task_;
  std::optional<std::size_t> epoch_;
  std::vector<std::size_t> order_;  // the rows' order in that epoch
};

}  // namespace lockstep::tools
