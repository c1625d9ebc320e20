#include "engine/optim/optimizer.h"

#include <algorithm>
#include <optional>

#include "engine/core/error.h"
#include "engine/runtime/device_span.h"
#include "engine/runtime/logical_device.h"
#include "engine/trace/observer.h"
#include "engine/trace/span.h"

namespace lockstep::optim {
namespace {

void require_learning_rate(const char* name, double learning_rate) {
  require(learning_rate >= 0, ErrorCode::Usage, name, "Invalid learning rate: {}", learning_rate);
}

trace::OptimizerStep described(const Optimizer& optimizer) {
  trace::OptimizerStep step{&optimizer, optimizer.learning_rate(), {}, {}};
  for (const Variable& parameter : optimizer.parameters()) {
    step.parameters.push_back({parameter.identity(), to_string(parameter.shape()),
                               parameter.value().num_elements(), parameter.grad().defined(),
                               trace::host_values(parameter.value()),
                               trace::host_values(parameter.grad())});
  }
  step.device = to_string(optimizer.parameters().front().device());
  return step;
}

}  // namespace

Optimizer::Optimizer(const char* name, std::vector<Variable> parameters, double learning_rate,
                     StateLayout layout)
    : name_(name),
      parameters_(std::move(parameters)),
      learning_rate_(learning_rate),
      layout_(layout),
      states_(parameters_.size()),
      num_steps_(parameters_.size()) {
  require(!parameters_.empty(), ErrorCode::Usage, name, "optimizer got an empty parameter list");
  require_learning_rate(name, learning_rate);
  std::vector<const void*> identities;
  for (const Variable& parameter : parameters_) {
    require(parameter.is_leaf() && parameter.requires_grad(), ErrorCode::Usage, name,
            "can't optimize a non-leaf Tensor, or one that does not require a gradient: {}",
            describe(parameter.value()));
    identities.push_back(parameter.identity());
  }
  std::sort(identities.begin(), identities.end());
  require(std::adjacent_find(identities.begin(), identities.end()) == identities.end(),
          ErrorCode::Usage, name, "some parameters appear more than once");
  if (trace::Observer* observer = trace::observer()) {
    observer->step({this, learning_rate, {}, {}}, trace::Moment::made);
  }
}

void Optimizer::zero_grad() {
  for (Variable& parameter : parameters_) parameter.clear_grad();
}

void Optimizer::set_learning_rate(double learning_rate) {
  require_learning_rate(name_, learning_rate);
  learning_rate_ = learning_rate;
}

void Optimizer::step() {
  trace::ScopedSpan span(trace::Lane::compute, trace::Category::optimizer, name_);
  trace::Observer* const observer = trace::observer();
  std::optional<trace::OptimizerStep> told;
  if (observer != nullptr) observer->step(told.emplace(described(*this)), trace::Moment::begins);
  if (!groups_fit()) regroup();
  for (Group& group : groups_) {
    if (group.gradients != Group::Gradients::present) continue;
    runtime::DeviceSpan on_device(group.step.stream(), trace::Lane::compute,
                                  trace::Category::optimizer, name_);
    run(group);
  }
  if (told) observer->step(*told, trace::Moment::ends);
}

// Whether every parameter is still what its group says.
bool Optimizer::groups_fit() const {
  if (groups_.empty()) return false;
  for (const Group& group : groups_) {
    const bool wants_gradients = group.gradients == Group::Gradients::present;
    for (const std::size_t index : group.members) {
      const Variable& parameter = parameters_[index];
      const Tensor& value = parameter.value();
      if (parameter.grad().defined() != wants_gradients || value.dtype() != group.dtype ||
          value.device() != group.device) {
        return false;
      }
    }
  }
  return true;
}

void Optimizer::regroup() {
  groups_.clear();
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const Tensor& value = parameters_[i].value();
    const auto gradients =
        parameters_[i].grad().defined() ? Group::Gradients::present : Group::Gradients::absent;
    auto group = std::find_if(groups_.begin(), groups_.end(), [&](const Group& g) {
      return g.device == value.device() && g.dtype == value.dtype() &&
             g.num_steps == num_steps_[i] && g.gradients == gradients;
    });
    if (group == groups_.end()) {
      Group fresh;
      fresh.device = value.device();
      fresh.dtype = value.dtype();
      fresh.num_steps = num_steps_[i];
      fresh.gradients = gradients;
      groups_.push_back(std::move(fresh));
      group = groups_.end() - 1;
    }
    group->members.push_back(i);
  }
  for (Group& group : groups_) prepare(group);
}

// Makes what the group keeps on its device.
void Optimizer::prepare(Group& group) {
  const runtime::DeviceSpan on_device(runtime::logical_device(group.device).compute_stream(),
                                      trace::Lane::compute, trace::Category::optimizer, name_);
  group.step = Tensor::full({1}, static_cast<double>(group.num_steps), DType::int64, group.device);
  group.learning_rate = Tensor::full({1}, learning_rate_, DType::float64, group.device);
  group.rate_on_device = learning_rate_;
  if (group.gradients == Group::Gradients::absent) return;
  for (const std::size_t index : group.members) {
    const Shape& shape = parameters_[index].value().shape();
    for (std::size_t s = 0; s < layout_.count; ++s) {
      Tensor& state = states_[index][s];
      if (state.defined()) {
        state = state.to(group.device).to(group.dtype);
      } else if (layout_.initial == InitialState::zeros) {
        state = Tensor::zeros(shape, group.dtype, group.device);
      } else {
        state = Tensor::empty(shape, group.dtype, group.device);
      }
    }
  }
}

void Optimizer::write_learning_rate(Group& group) const {
  if (group.rate_on_device == learning_rate_) return;
  group.learning_rate.fill(learning_rate_);
  group.rate_on_device = learning_rate_;
}

void Optimizer::write_learning_rate() {
  for (Group& group : groups_) write_learning_rate(group);
}

void Optimizer::count_replayed_step() {
  for (Group& group : groups_) {
    if (group.gradients == Group::Gradients::absent) continue;
    ++group.num_steps;
    for (const std::size_t index : group.members) {
      parameters_[index].value().bump_version();
      ++num_steps_[index];
    }
  }
}

void Optimizer::run(Group& group) {
  updates_.clear();
  for (const std::size_t index : group.members) {
    const Tensor& value = parameters_[index].value();
    const Tensor& grad = parameters_[index].grad();
    require_same_device(name_, {&value, &grad});
    require_same_dtype(name_, {&value, &grad});
    value.bump_version();
    Update& update = updates_.emplace_back(Update{value.view(), grad.view(), {}});
    for (std::size_t s = 0; s < layout_.count; ++s) update.state[s] = states_[index][s].view();
    ++num_steps_[index];
  }
  write_learning_rate(group);
  update(group.step.backend(), group.step.stream(), updates_,
         {group.learning_rate.view(), group.step.view()});
  ++group.num_steps;
}

}  // namespace lockstep::optim
