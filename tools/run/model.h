// The strategies by which a task is trained, and its optimizers and loaders.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/data/data_loader.h"
#include "engine/nn/module.h"
#include "engine/optim/optimizer.h"
#include "engine/parallel/strategy.h"
#include "tools/run/placement.h"
#include "tools/run/task.h"

namespace lockstep::tools {

// Those of one thread: its rank's, or all ranks' where a step is captured as a graph.
using Strategies = std::vector<std::unique_ptr<parallel::Strategy>>;

std::vector<Device> devices_of(const Strategies& strategies);

// Adds up numbers that each thread has for its ranks. All of them call it.
std::vector<double> sum_over_ranks(const parallel::Strategy& strategy,
                                   const std::vector<double>& numbers);

// Makes the task's model with its weights on the device.
std::shared_ptr<nn::Module> make_model(const TrainingTask& task, Device device);

// For a run that one thread drives. Weights are those of DDP with a thread per rank, bit by bit.
// Rank 0's model holds the result.
Strategies make_strategies(const TrainingTask& task, const DevicePlacement& placement);

// For one of several ranks. Every rank calls it. REQUIRES: the communicator outlives it.
Strategies make_strategies(const TrainingTask& task, Device device,
                           comm::Communicator& communicator);

std::unique_ptr<optim::Optimizer> make_optimizer(const TrainingTask& task,
                                                 const parallel::Strategy& strategy);
// SGD has one weight decay, that of the settings, for all groups.
std::unique_ptr<optim::Optimizer> make_optimizer(const OptimizerSettings& settings,
                                                 const std::vector<optim::ParameterGroup>& groups);

// The rows of this rank, epoch by epoch, on its first device.
std::unique_ptr<data::DataLoader> make_loader(const TrainingTask& task,
                                              const parallel::Strategy& strategy);

// Gradients are those of the mean loss over the global batch under --sampler exact; under torch
// they are the average over ranks of the mean over each rank's rows. Returns the summed loss.
Tensor add_gradients(const TrainingTask& task, parallel::Strategy& strategy,
                     const data::Batch& batch);

// The number of tensors that the optimizer keeps for a parameter, once it has made a step.
std::size_t num_state_tensors(const OptimizerSettings& settings);

// The optimizer's state by parameter, after num_steps steps. Only rank 0 has all tensors. All ranks
// call it.
using OptimizerStates = std::vector<std::pair<std::string, optim::Optimizer::State>>;
OptimizerStates whole_optimizer_state(const TrainingTask& task, const parallel::Strategy& strategy,
                                      const optim::Optimizer& optimizer, std::size_t num_steps);

// A tensor for each parameter of the optimizer, and the same for the strategy's pieces.
using TensorOf = std::function<Tensor(std::size_t parameter)>;  // by place in the optimizer
parallel::Strategy::OfPiece by_piece(const parallel::Strategy& strategy,
                                     const optim::Optimizer& optimizer, TensorOf tensor_of);

}  // namespace lockstep::tools
