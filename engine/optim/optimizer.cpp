#include "engine/optim/optimizer.h"

#include <algorithm>
#include <optional>

#include "engine/core/error.h"
#include "engine/core/thread_context.h"
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
  trace::OptimizerStep step;
  step.optimizer = &optimizer;
  step.name = optimizer.name();
  step.num_states = optimizer.num_states();
  step.learning_rate = optimizer.learning_rate();
  for (const Variable& parameter : optimizer.parameters()) {
    step.parameters.push_back({parameter.identity(), to_string(parameter.shape()),
                               parameter.value().num_elements(), parameter.grad().defined(),
                               trace::host_values(parameter.value()),
                               trace::host_values(parameter.grad())});
  }
  step.device = to_string(optimizer.parameters().front().device());
  return step;
}

runtime::DeviceSpan span_on(runtime::Stream& stream, const char* name) {
  return {stream, trace::Lane::compute, trace::Category::optimizer, name};
}

}  // namespace

Optimizer::Optimizer(const char* name, const std::vector<ParameterGroup>& groups,
                     double learning_rate, std::size_t num_states)
    : name_(name), learning_rate_(learning_rate), num_states_(num_states) {
  for (const ParameterGroup& group : groups) {
    require(group.weight_decay >= 0, ErrorCode::Usage, name, "Invalid weight_decay value: {}",
            group.weight_decay);
    parameters_.insert(parameters_.end(), group.parameters.begin(), group.parameters.end());
    weight_decays_.resize(parameters_.size(), group.weight_decay);
  }
  states_.resize(parameters_.size());
  num_steps_.resize(parameters_.size());
  require(!parameters_.empty(), ErrorCode::Usage, name, "optimizer got an empty parameter list");
  require_learning_rate(name, learning_rate);
  std::vector<const void*> identities;
  for (const Variable& parameter : parameters_) {
    require(parameter.is_leaf(), ErrorCode::Usage, name, "can't optimize a non-leaf Tensor: {}",
            describe(parameter.value()));
    identities.push_back(parameter.identity());
  }
  std::sort(identities.begin(), identities.end());
  require(std::adjacent_find(identities.begin(), identities.end()) == identities.end(),
          ErrorCode::Usage, name, "some parameters appear more than once");
  if (trace::Observer* observer = trace::observer()) {
    observer->step(described(*this), trace::Moment::made);
  }
}

void Optimizer::zero_grad() {
  for (Variable& parameter : parameters_) parameter.clear_grad();
}

void Optimizer::set_learning_rate(double learning_rate) {
  require_learning_rate(name_, learning_rate);
  learning_rate_ = learning_rate;
}

Optimizer::State Optimizer::state(std::size_t index) const {
  State state{num_steps_.at(index), {}};
  for (const Tensor& tensor : states_[index]) {
    if (tensor.defined()) state.tensors.push_back(tensor);
  }
  return state;
}

void Optimizer::load_state(std::size_t index, const State& state) {
  const std::vector<Tensor>& tensors = state.tensors;
  require(tensors.empty() || tensors.size() == num_states_, ErrorCode::Shape, name_,
          "keeps {} tensors for a parameter, the state to load has {}", num_states_,
          tensors.size());
  for (std::size_t s = 0; s < tensors.size(); ++s) {
    require_same_shape(name_, parameters_.at(index).value(), tensors[s]);
    states_[index][s] = tensors[s].clone();
  }
  num_steps_.at(index) = state.num_steps;
}

void Optimizer::step() {
  trace::ScopedSpan span(trace::Lane::compute, trace::Category::optimizer, name_);
  trace::Observer* const observer = trace::observer();
  std::optional<trace::OptimizerStep> observed;
  if (observer != nullptr)
    observer->step(observed.emplace(described(*this)), trace::Moment::begins);
  for (Group& group : groups_) {
    group.members.clear();
    group.updates.clear();
  }
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (parameters_[i].grad().defined()) add_update(i);
  }
  for (Group& group : groups_) {
    if (group.members.empty()) continue;
    const runtime::DeviceSpan on_device = span_on(group.step.stream(), name_);
    write_learning_rate(group);
    update(group.step.backend(), group.step.stream(), group.updates,
           {group.learning_rate.view(), group.step.view()}, group.weight_decay);
    count_step(group);
  }
  ++thread_context().step;
  if (observed) observer->step(*observed, trace::Moment::ends);
}

Optimizer::Group& Optimizer::group_of(std::size_t index) {
  const Tensor& value = parameters_[index].value();
  const std::uint64_t num_steps = num_steps_[index];
  for (Group& group : groups_) {
    if (group.device == value.device() && group.dtype == value.dtype() &&
        group.weight_decay == weight_decays_[index] && group.num_steps == num_steps) {
      return group;
    }
  }
  Group& group = groups_.emplace_back();
  group.device = value.device();
  group.dtype = value.dtype();
  group.weight_decay = weight_decays_[index];
  group.num_steps = num_steps;
  const runtime::DeviceSpan on_device = span_on(value.stream(), name_);
  group.step = Tensor::full({1}, static_cast<double>(num_steps), DType::int64, group.device);
  group.learning_rate = Tensor::full({1}, learning_rate_, DType::float64, group.device);
  group.rate_on_device = learning_rate_;
  return group;
}

void Optimizer::add_update(std::size_t index) {
  const Tensor& value = parameters_[index].value();
  const Tensor& grad = parameters_[index].grad();
  require_same_device(name_, {&value, &grad});
  require_same_dtype(name_, {&value, &grad});
  std::array<TensorView, kMaxState> states{};
  for (std::size_t s = 0; s < num_states_; ++s) {
    Tensor& state = states_[index][s];
    if (state.defined()) {
      state = state.to(value.device()).to(value.dtype());
    } else {
      const runtime::DeviceSpan on_device = span_on(value.stream(), name_);
      state = Tensor::zeros(value.shape(), value.dtype(), value.device());
    }
    states[s] = state.view();
  }
  Group& group = group_of(index);
  group.members.push_back(index);
  group.updates.push_back({value.view(), grad.view(), states[0], states[1]});
}

void Optimizer::write_learning_rate(Group& group) const {
  if (group.rate_on_device == learning_rate_) return;
  group.learning_rate.fill(learning_rate_);
  group.rate_on_device = learning_rate_;
}

void Optimizer::count_step(Group& group) {
  ++group.num_steps;
  for (const std::size_t index : group.members) {
    parameters_[index].value().bump_version();
    ++num_steps_[index];
  }
}

namespace {

kernels::SgdOptions checked(const SgdOptions& options) {
  const bool is_nesterov = options.kind == SgdOptions::Kind::nesterov;
  require(options.momentum >= 0, ErrorCode::Usage, "SGD", "Invalid momentum value: {}",
          options.momentum);
  require(!is_nesterov || (options.momentum > 0 && options.dampening == 0), ErrorCode::Usage, "SGD",
          "Nesterov momentum requires a momentum and zero dampening");
  return {options.momentum, options.dampening, 0, options.kind};
}

}  // namespace

Sgd::Sgd(std::vector<Variable> parameters, const SgdOptions& options)
    : Optimizer("SGD", {{std::move(parameters), options.weight_decay}}, options.learning_rate,
                options.momentum != 0 ? 1 : 0),
      options_(checked(options)) {}

void Sgd::update(kernels::Backend& backend, runtime::Stream& stream, const Updates& updates,
                 const kernels::StepScalars& scalars, double weight_decay) {
  kernels::SgdOptions options = options_;
  options.weight_decay = weight_decay;
  backend.sgd(stream, {updates, scalars, options});
}

}  // namespace lockstep::optim
