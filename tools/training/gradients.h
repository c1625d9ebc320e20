// Forward and backward of one step: leaves gradients in the parameters' grad().
#pragma once

#include "engine/comm/communicator.h"
#include "engine/data/data_loader.h"
#include "engine/nn/module.h"
#include "tools/training/task.h"

namespace lockstep::tools {

// The models of one line of work. `wrapped` is what forward() is called on: the inner model itself,
// DataParallel or Ddp around it.
struct RankModel {
  std::shared_ptr<nn::Module> inner;
  std::shared_ptr<nn::Module> wrapped;
  std::vector<Device> devices;                 // of this rank: several only under DataParallel
  comm::Communicator* communicator = nullptr;  // DDP with a thread per rank only
  std::size_t num_ranks = 1;
};

// Returns the sum of the loss over this rank's rows (over all ranks' rows in bitwise mode): one
// element, on the device where the model's output is, or on the CPU. Gradients are those of the
// mean loss over the global batch under --sampler exact; under torch they are the average over
// ranks of the mean over each rank's rows.
Tensor compute_gradients(const TrainingTask& task, const RankModel& model,
                         const data::Batch& batch);

}  // namespace lockstep::tools
