#include "engine/optim/optimizers.h"

#include "engine/core/error.h"

namespace lockstep::optim {

namespace {

kernels::SgdOptions checked(const SgdOptions& options) {
  const bool is_nesterov = options.kind == SgdOptions::Kind::nesterov;
  require(options.momentum >= 0, ErrorCode::Usage, "SGD", "Invalid momentum value: {}",
          options.momentum);
  require(options.weight_decay >= 0, ErrorCode::Usage, "SGD", "Invalid weight_decay value: {}",
          options.weight_decay);
  require(!is_nesterov || (options.momentum > 0 && options.dampening == 0), ErrorCode::Usage, "SGD",
          "Nesterov momentum requires a momentum and zero dampening");
  return {options.momentum, options.dampening, options.weight_decay, options.kind};
}

}  // namespace

Sgd::Sgd(std::vector<Variable> parameters, const SgdOptions& options)
    : Optimizer(
          "SGD", std::move(parameters), options.learning_rate,
          {options.momentum != 0 ? std::size_t{1} : std::size_t{0}, InitialState::uninitialised}),
      options_(checked(options)) {}

void Sgd::update(kernels::Backend& backend, runtime::Stream& stream,
                 const std::vector<Update>& updates, const kernels::StepScalars& scalars) {
  call_.clear();
  for (const Update& update : updates) {
    call_.push_back({update.weight, update.grad, update.state[0]});
  }
  backend.sgd(stream, call_, scalars, options_);
}

namespace {

kernels::AdamWOptions checked(const AdamWOptions& options) {
  require(options.epsilon >= 0, ErrorCode::Usage, "AdamW", "Invalid epsilon value: {}",
          options.epsilon);
  require(options.beta1 >= 0 && options.beta1 < 1, ErrorCode::Usage, "AdamW",
          "Invalid beta parameter at index 0: {}", options.beta1);
  require(options.beta2 >= 0 && options.beta2 < 1, ErrorCode::Usage, "AdamW",
          "Invalid beta parameter at index 1: {}", options.beta2);
  require(options.weight_decay >= 0, ErrorCode::Usage, "AdamW", "Invalid weight_decay value: {}",
          options.weight_decay);
  return {options.beta1, options.beta2, options.epsilon, options.weight_decay};
}

}  // namespace

AdamW::AdamW(std::vector<Variable> parameters, const AdamWOptions& options)
    : Optimizer("AdamW", std::move(parameters), options.learning_rate, {2, InitialState::zeros}),
      options_(checked(options)) {}

void AdamW::update(kernels::Backend& backend, runtime::Stream& stream,
                   const std::vector<Update>& updates, const kernels::StepScalars& scalars) {
  call_.clear();
  for (const Update& update : updates) {
    call_.push_back({update.weight, update.grad, update.state[0], update.state[1]});
  }
  backend.adamw(stream, call_, scalars, options_);
}

}  // namespace lockstep::optim
