#include "engine/parallel/sharded/unit_schedule.h"

#include <utility>

#include "engine/autograd/backward.h"
#include "engine/autograd/node.h"
#include "engine/core/error.h"

namespace lockstep::parallel {

UnitSchedule::UnitSchedule(std::shared_ptr<nn::Module> module, comm::Communicator& communicator,
                           ShardDepth depth)
    : module_(std::move(module)), communicator_(communicator), depth_(depth) {
  std::vector<UnitLayout> layouts =
      unit_layouts(*module_, static_cast<std::size_t>(communicator.world_size()));
  has_root_ = layouts[0].module == module_.get();
  units_.reserve(layouts.size());
  for (std::size_t i = 0; i < layouts.size(); ++i) {
    const Unit& unit = units_.emplace_back(std::move(layouts[i]), communicator, depth);
    unit.layout().module->set_around(
        [this, i](const std::function<Variable()>& forward) { return run_forward(i, forward); });
    for (std::size_t p = 0; p < unit.layout().parameters.size(); ++p) {
      Variable parameter = unit.layout().parameters[p].second;
      const auto id = parameter.on_grad_ready([this, i, p](const Variable&) { on_ready(i, p); });
      hooks_.push_back({parameter, id});
    }
  }
}

UnitSchedule::~UnitSchedule() {
  for (const Unit& unit : units_) unit.layout().module->set_around({});
  for (Hook& hook : hooks_) {
    hook.parameter.remove_grad_hook(hook.id);
    hook.parameter.set_grad_slot({});
  }
}

Variable UnitSchedule::run_forward(std::size_t i, const std::function<Variable()>& forward) {
  units_[i].gather();
  if (i + 1 < units_.size()) units_[i + 1].start_gather();
  const Variable y = forward();
  units_[i].free_parameters();
  // The identity, on the unit's output: its backward runs before that of the unit's own operations.
  const auto backward = [this, i](const Node&, const Gradients& grad_outputs) {
    before_backward(i);
    return Gradients{grad_outputs[0]};
  };
  return record("UnitOutput", {y}, y.value(), {}, backward);
}

// Backward begins at the output: of the root, if it is a unit, and then of the last layer.
std::size_t UnitSchedule::unit_before(std::size_t i) const {
  const std::size_t first_layer = has_root_ ? 1 : 0;
  if (has_root_ && i == 0) return units_.size() > 1 ? units_.size() - 1 : kNone;
  return i > first_layer ? i - 1 : kNone;
}

void UnitSchedule::before_backward(std::size_t i) {
  begin_backward();
  units_[i].gather();
  if (const std::size_t next = unit_before(i); next != kNone) units_[next].start_gather();
  units_[i].begin_backward();
}

void UnitSchedule::begin_backward() {
  if (std::exchange(in_backward_, true)) return;
  on_backward_end([this] { finish_backward(); });
}

void UnitSchedule::on_ready(std::size_t i, std::size_t parameter) {
  if (depth_ == ShardDepth::optimizer && !is_stepping_) return;
  begin_backward();
  if (!units_[i].collect(parameter)) return;
  units_[i].free_parameters();
  if (reducing_ != kNone) units_[reducing_].finish_reduce();
  reducing_ = i;
  units_[i].start_reduce();
}

void UnitSchedule::finish_backward() {
  in_backward_ = false;
  if (depth_ == ShardDepth::optimizer && !is_stepping_) return;
  for (const Unit& unit : units_) {
    const std::string missing = unit.missing();
    require(missing.empty(), ErrorCode::State, "sharded",
            "rank {}: these parameters got no gradient in this backward pass, and others of their "
            "layer did: {}; every parameter must take part in the loss",
            communicator_.rank(), missing);
  }
  if (reducing_ != kNone) units_[std::exchange(reducing_, kNone)].finish_reduce();
  for (Unit& unit : units_) {
    if (is_stepping_) unit.expect_step();
  }
}

void UnitSchedule::begin_forward() {
  in_backward_ = false;
  if (reducing_ != kNone) units_[std::exchange(reducing_, kNone)].finish_reduce();
  for (Unit& unit : units_) unit.forget_collected();
}

}  // namespace lockstep::parallel
