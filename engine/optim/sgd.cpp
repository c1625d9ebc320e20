#include "engine/optim/sgd.h"

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

}  // namespace lockstep::optim
