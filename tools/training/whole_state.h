// Makes a model's tensors whole where each rank has a shard of them, for checkpoints and the
// verdict. All ranks call these together.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tools/training/model.h"

namespace lockstep::tools {

// The tensors that the optimizer steps on, in its order: whole parameters, or this rank's pieces.
std::vector<parallel::ShardPiece> optimized_pieces(const optim::Optimizer& optimizer,
                                                   const RankModel& model);

// Makes each parameter's tensor out of all pieces' (piece: the index in the optimizer), and calls
// visit(its name, the tensor) on every rank.
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
