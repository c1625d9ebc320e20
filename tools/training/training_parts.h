// What a training loop is made of, whoever drives it: one thread per rank, or one for all ranks.
#pragma once

#include <memory>
#include <vector>

#include "engine/data/data_loader.h"
#include "engine/optim/optimizer.h"
#include "tools/training/task.h"

namespace lockstep::tools {

std::unique_ptr<optim::Optimizer> make_optimizer(const OptimizerSettings& settings,
                                                 const std::vector<Variable>& parameters);

// The rows of a rank, epoch by epoch.
data::EpochSampler make_sampler(const TrainingTask& task, std::size_t world_size, std::size_t rank);

// A loader of these rows onto a device.
std::unique_ptr<data::DataLoader> make_loader(const TrainingTask& task, std::size_t world_size,
                                              std::size_t rank, Device device);

// Where the batches of a captured step stand, all of them in the same memory.
struct BatchMemory {
  // Room for `num_rows` rows, the number that a rank gets of a full batch.
  BatchMemory(const TrainingTask& task, std::size_t num_rows, Device device);

  // Whether a batch is as large as the ones that are captured.
  bool is_filled_by(const data::Batch& batch) const {
    return batch.labels.num_elements() == labels.num_elements();
  }

  Tensor x;       // [rows, features]
  Tensor labels;  // [rows] int64
};

// Rows of a full batch: --batch, or all training rows if there are fewer.
std::size_t rows_of_full_batch(const TrainingTask& task);

// Throws Error{Numeric} naming step and rank unless the loss is a finite number.
void require_finite(double loss, std::size_t step, int rank);

}  // namespace lockstep::tools
