// The models that one thread trains: one device's, DataParallel's, one rank's of DDP, a stage of a
// pipeline, or, where a step is captured as a graph, the replicas of all ranks.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/comm/communicator.h"
#include "engine/data/data_loader.h"
#include "engine/nn/module.h"
#include "engine/optim/optimizer.h"
#include "engine/parallel/ddp/replica_group.h"
#include "engine/parallel/pipeline/pipeline_stage.h"
#include "engine/parallel/sharded/sharded.h"
#include "tools/run/placement.h"
#include "tools/run/task.h"

namespace lockstep::tools {

struct RankModel {
  int rank = 0;
  std::shared_ptr<nn::Module> inner;    // which has the parameters; of a pipeline its stage's
  std::shared_ptr<nn::Module> wrapped;  // what forward() is called on: the inner model itself,
                                        // DataParallel, Ddp or Sharded around it
  std::vector<Device> devices;          // of this rank: several only under DataParallel
};

struct LocalModels {
  std::vector<RankModel> ranks;                       // that this thread drives
  std::size_t num_ranks = 1;                          // of the whole run
  comm::Communicator* communicator = nullptr;         // to the ranks of other threads or processes
  std::unique_ptr<parallel::ReplicaGroup> replicas;   // where this thread drives all ranks of DDP
  std::unique_ptr<parallel::PipelineStage> pipeline;  // this rank's stage
  std::shared_ptr<parallel::Sharded> sharded;         // around this rank's model, under --shard

  const RankModel& first() const { return ranks[0]; }
  std::vector<Device> devices() const;  // of all these ranks
  // Adds up numbers that each thread has for its ranks. All of them call it.
  std::vector<double> sum_over_ranks(const std::vector<double>& numbers) const;
  // No rank has the whole model.
  bool is_in_parts() const { return pipeline || sharded; }
  // How many ranks share the rows of a batch: the stages of a pipeline all take the whole.
  std::size_t num_shards() const { return pipeline ? 1 : num_ranks; }
  std::size_t shard_of(const RankModel& model) const {
    return pipeline ? 0 : static_cast<std::size_t>(model.rank);
  }
  // The whole model's weights on rank 0, which later steps do not change; in parts
  // nothing elsewhere. All ranks call it.
  nn::StateDict copy_weights() const;
  // Clips the gradients of all ranks together, and returns their norm before.
  Tensor clip_gradients(double max_norm) const;
};

// With the task's weights, on the device.
std::shared_ptr<nn::Module> make_model(const TrainingTask& task, Device device);

// All models of a run that one thread drives. Weights are those of DDP with a thread per rank, bit
// by bit. Rank 0's model holds the result.
LocalModels make_models(const TrainingTask& task, const DevicePlacement& placement);

// One rank of DDP, or a stage of the task's pipeline. Every rank calls it.
// REQUIRES: the communicator outlives the model.
LocalModels make_rank_model(const TrainingTask& task, Device device,
                            comm::Communicator& communicator);

// The order in which DDP's buckets hold the parameters; empty without DDP, and before its first
// step has settled it.
std::vector<std::size_t> bucket_order(const LocalModels& models);

std::unique_ptr<optim::Optimizer> make_optimizer(const TrainingTask& task, const RankModel& model);
// SGD has one weight decay, that of the settings, for all groups.
std::unique_ptr<optim::Optimizer> make_optimizer(const OptimizerSettings& settings,
                                                 const std::vector<optim::ParameterGroup>& groups);

// The rows of this rank, epoch by epoch, on its first device.
std::unique_ptr<data::DataLoader> make_loader(const TrainingTask& task, const LocalModels& models,
                                              const RankModel& model);

// Forward and backward of one step, micro-batch after micro-batch: leaves gradients in the
// parameters' grad().
// batches: by local rank. Returns for each the sum of the loss over its rows (over all ranks' rows
// in bitwise mode): one element, on the device where the model's output is, or on the CPU.
// Gradients are those of the mean loss over the global batch under --sampler exact; under torch
// they are the average over ranks of the mean over each rank's rows.
std::vector<Tensor> compute_gradients(const TrainingTask& task, const LocalModels& models,
                                      const std::vector<data::Batch>& batches);

// The tensors that the optimizer steps on, in its order: whole parameters, or this rank's pieces.
std::vector<parallel::ShardPiece> optimized_pieces(const optim::Optimizer& optimizer,
                                                   const RankModel& model);

// Makes each parameter's tensor out of all pieces' (piece: the index in the optimizer), and calls
// visit(its name, the tensor) on every rank. All ranks call it, and whole_optimizer_state().
void visit_whole(const LocalModels& models, std::size_t local, const optim::Optimizer& optimizer,
                 const std::function<Tensor(std::size_t piece)>& of_piece,
                 const std::function<void(const std::string& name, const Tensor& whole)>& visit);

// How many tensors the optimizer keeps for a parameter, once it has made a step.
std::size_t num_state_tensors(const OptimizerSettings& settings);

// The optimizer's state by parameter, after num_steps steps. Only rank 0 puts shards together; a
// stage of a pipeline has its own.
using OptimizerStates = std::vector<std::pair<std::string, optim::Optimizer::State>>;
OptimizerStates whole_optimizer_state(const TrainingTask& task, const LocalModels& models,
                                      const optim::Optimizer& optimizer, std::size_t num_steps);

}  // namespace lockstep::tools
