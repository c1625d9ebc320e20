#include "engine/parallel/sharded/sharded.h"

#include <cmath>
#include <limits>
#include <utility>

#include "engine/core/error.h"
#include "engine/core/thread_context.h"
#include "engine/parallel/clip_over_ranks.h"
#include "engine/parallel/ddp/ddp.h"

namespace lockstep::parallel {

Sharded::Sharded(std::shared_ptr<nn::Module> module, comm::Communicator& communicator,
                 ShardDepth depth)
    : communicator_(&communicator), depth_(depth) {
  require(module != nullptr, ErrorCode::Usage, "sharded", "there is no module to wrap");
  broadcast_model(*module, communicator);
  schedule_ = std::make_shared<UnitSchedule>(module, communicator, depth);
  buffers_.pack(*module);
  register_child("module", std::move(module));
}

Variable Sharded::forward(const Variable& input) {
  if (grad_enabled()) {
    schedule_->begin_forward();
    if (is_training()) buffers_.broadcast(*module(), *communicator_, 0);
  }
  const ThreadContextScope scope(context_of_rows(input.value(), communicator_->rank()));
  return (*module())(input);
}

std::vector<ShardPiece> Sharded::pieces() const {
  std::vector<ShardPiece> all;
  for (const Unit& unit : units()) {
    all.insert(all.end(), unit.pieces().begin(), unit.pieces().end());
  }
  return all;
}

std::vector<optim::ParameterGroup> Sharded::groups(double weight_decay, Decays decays) const {
  std::vector<optim::ParameterGroup> groups{{{}, weight_decay}, {{}, 0}};
  for (const ShardPiece& piece : pieces()) {
    const bool is_vector = decays == Decays::matrices && piece.shape.num_dims() < 2;
    groups[is_vector ? 1 : 0].parameters.push_back(piece.value);
  }
  if (groups[0].parameters.empty() && groups[1].parameters.empty()) {
    // A rank may have nothing but padding of a small model, and an optimizer needs a parameter.
    const Tensor& any = units()[0].layout().parameters[0].second.value();
    groups[0].parameters.emplace_back(Tensor::zeros({1}, any.dtype(), any.device()),
                                      RequiresGrad::yes);
  }
  return groups;
}

Tensor Sharded::clip_grad_norm(double max_norm) const {
  std::vector<Variable> values;
  for (const ShardPiece& piece : pieces()) values.push_back(piece.value);
  const Device device = units()[0].layout().parameters[0].second.device();
  return clip_over_ranks(values, values, max_norm, *communicator_, device);
}

void Sharded::gather(const OfPiece& of_piece, const Visit& visit) const {
  for (const Unit& unit : units()) {
    const Tensor all = unit.gather_pieces(of_piece);
    for (std::size_t i = 0; i < unit.layout().parameters.size(); ++i) {
      const auto& [name, parameter] = unit.layout().parameters[i];
      visit(name, all.slice(unit.layout().offsets[i], parameter.shape()));
    }
  }
}

nn::StateDict Sharded::state_dict() const {
  nn::StateDict state = nn::state_dict(*module());
  std::vector<bool> is_copied(state.size(), false);
  const auto copy = [&](std::size_t i) {
    state[i].second = state[i].second.to(Device{}).clone();
    is_copied[i] = true;
  };
  const bool is_first = communicator_->rank() == 0;
  for (Unit& unit : schedule_->units()) {
    const bool was_whole = unit.is_whole();
    unit.gather();
    for (std::size_t i = 0; is_first && i < state.size(); ++i) {
      if (!is_copied[i] && unit.holds(state[i].second)) copy(i);
    }
    if (!was_whole) unit.expect_step();  // as it was: the step's own gather still comes
  }
  if (!is_first) return {};
  for (std::size_t i = 0; i < state.size(); ++i) {
    if (!is_copied[i]) copy(i);
  }
  return state;
}

Tensor piece_of(const ShardPiece& piece, const Tensor& whole) {
  return whole.slice(piece.offset, piece.value.shape());
}

}  // namespace lockstep::parallel
