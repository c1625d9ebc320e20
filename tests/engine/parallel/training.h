// One small training run in every way there is: on one device, DataParallel, DDP, bitwise.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "engine/autograd/variable.h"
#include "engine/nn/module.h"
#include "engine/parallel/ddp/ddp.h"

namespace lockstep::testing {

struct TrainingCase {
  DType dtype = DType::float64;
  std::vector<std::size_t> batches = {24};  // rows of the steps, used in turn
  std::size_t num_steps = 20;
  double dropout = 0;       // probability; 0 leaves the layer out
  bool batch_norm = false;  // over the rows of all devices
  double learning_rate = 0.1;
  double momentum = 0.9;
};

// Per parameter, in the order of parameters(), then per buffer.
using Weights = std::vector<std::vector<double>>;

struct TrainingBatch {
  Tensor x;       // [rows, 6]
  Tensor labels;  // [rows]
};

// The rows of one rank, and the weight of their summed loss in world_size times the batch's mean.
struct TrainingShard {
  Tensor x;
  Tensor labels;
  double weight = 0;
  std::size_t first_row = 0;
};
// Empty for a rank that gets no rows.
TrainingShard shard_of(const TrainingBatch& batch, int rank, int world_size, Device device);

// The same for every call with the same arguments.
std::shared_ptr<nn::Module> make_model(const TrainingCase& training);
TrainingBatch make_batch(const TrainingCase& training, std::size_t step);
Weights weights_of(const nn::Module& module);

Variable sum_loss(const Variable& logits,
                  const Tensor& labels);  // cross entropy, summed over the rows

// The mean of the loss over the rows of the batch, on cpu:0.
Weights train_on_one_device(const TrainingCase& training);
// The same work with a wrapper.
Weights train_data_parallel(const TrainingCase& training, const std::vector<Device>& devices);
// Ranks as threads, rank r on cpu:r. Each rank's loss is the sum over its rows, scaled by
// world_size / global rows; a rank without rows contributes zeros. Checks that all ranks end with
// the same bits.
Weights train_ddp(const TrainingCase& training, int world_size,
                  const parallel::DdpOptions& options = {});
// One rank's part of it, on this device.
Weights train_ddp_rank(const TrainingCase& training, comm::Communicator& communicator,
                       Device device, const parallel::DdpOptions& options = {});
// Fixed order of additions, 1, 2, 4 or 8 devices.
Weights train_bitwise_data_parallel(const TrainingCase& training, std::size_t num_devices);
Weights train_bitwise_ddp(const TrainingCase& training, int world_size);
Weights train_bitwise_ddp_rank(const TrainingCase& training, comm::Communicator& communicator,
                               Device device);

double largest_difference(const Weights& a, const Weights& b);

}  // namespace lockstep::testing
