#include "tools/training/whole_state.h"

#include <algorithm>
#include <map>

namespace lockstep::tools {

std::vector<parallel::ShardPiece> optimized_pieces(const optim::Optimizer& optimizer,
                                                   const RankModel& model) {
  std::vector<parallel::ShardPiece> all;
  if (const auto* const sharded = dynamic_cast<const parallel::Sharded*>(model.wrapped.get())) {
    all = sharded->pieces();
  } else {
    for (const auto& [name, parameter] : model.inner->named_parameters()) {
      all.push_back({name, parameter.shape(), 0, 0, parameter});
    }
  }
  std::vector<parallel::ShardPiece> ordered;
  for (const Variable& value : optimizer.parameters()) {
    const auto found = std::ranges::find_if(
        all, [&](const parallel::ShardPiece& piece) { return piece.value.is_same(value); });
    if (found != all.end()) ordered.push_back(*found);  // else the padding of Sharded::groups
  }
  return ordered;
}

void visit_whole(const LocalModels& models, std::size_t local, const optim::Optimizer& optimizer,
                 const std::function<Tensor(std::size_t piece)>& of_piece,
                 const std::function<void(const std::string& name, const Tensor& whole)>& visit) {
  const auto pieces = optimized_pieces(optimizer, models.ranks[local]);
  if (!models.sharded) {
    for (std::size_t i = 0; i < pieces.size(); ++i) visit(pieces[i].name, of_piece(i));
    return;
  }
  std::map<const void*, std::size_t> places;
  for (std::size_t i = 0; i < pieces.size(); ++i) places[pieces[i].value.identity()] = i;
  models.sharded->gather(
      [&](const parallel::ShardPiece& piece) {
        return of_piece(places.at(piece.value.identity()));
      },
      visit);
}

std::size_t num_state_tensors(const OptimizerSettings& settings) {
  if (settings.kind == OptimizerKind::adamw) return 2;
  return settings.momentum != 0 ? 1 : 0;
}

OptimizerStates whole_optimizer_state(const TrainingTask& task, const LocalModels& models,
                                      const optim::Optimizer& optimizer, std::size_t num_steps) {
  OptimizerStates states;
  const bool has_tensors = models.first().rank == 0 || models.pipeline;
  for (const auto& [name, parameter] : models.first().inner->named_parameters()) {
    states.emplace_back(name, optim::Optimizer::State{num_steps, {}});
  }
  for (std::size_t s = 0; s < num_state_tensors(task.optimizer); ++s) {
    visit_whole(
        models, 0, optimizer, [&](std::size_t i) { return optimizer.state(i).tensors.at(s); },
        [&](const std::string& name, const Tensor& whole) {
          if (!has_tensors) return;
          const auto found = std::ranges::find(states, name, &OptimizerStates::value_type::first);
          found->second.tensors.push_back(whole.to(Device{}));
        });
  }
  return states;
}

}  // namespace lockstep::tools
