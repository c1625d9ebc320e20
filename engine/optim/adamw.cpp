// AdamW, and the groups in which it decays parameters.
#include "engine/core/error.h"
#include "engine/optim/optimizer.h"

namespace lockstep::optim {

std::vector<ParameterGroup> decay_groups(const std::vector<Variable>& parameters,
                                         double weight_decay) {
  std::vector<ParameterGroup> groups{{{}, weight_decay}, {{}, 0}};
  for (const Variable& parameter : parameters) {
    const bool decays = parameter.shape().num_dims() >= 2;
    groups[decays ? 0 : 1].parameters.push_back(parameter);
  }
  return groups;
}

namespace {

kernels::AdamWOptions checked(const AdamWOptions& options) {
  require(options.epsilon >= 0, ErrorCode::Usage, "AdamW", "Invalid epsilon value: {}",
          options.epsilon);
  require(options.beta1 >= 0 && options.beta1 < 1, ErrorCode::Usage, "AdamW",
          "Invalid beta parameter at index 0: {}", options.beta1);
  require(options.beta2 >= 0 && options.beta2 < 1, ErrorCode::Usage, "AdamW",
          "Invalid beta parameter at index 1: {}", options.beta2);
  return {options.beta1, options.beta2, options.epsilon, 0};
}

}  // namespace

AdamW::AdamW(std::vector<Variable> parameters, const AdamWOptions& options)
    : AdamW(std::vector<ParameterGroup>{{std::move(parameters), options.weight_decay}}, options) {}

AdamW::AdamW(const std::vector<ParameterGroup>& groups, const AdamWOptions& options)
    : Optimizer("AdamW", groups, options.learning_rate, 2), options_(checked(options)) {}

void AdamW::update(kernels::Backend& backend, runtime::Stream& stream, const Updates& updates,
                   const kernels::StepScalars& scalars, double weight_decay) {
  kernels::AdamWOptions options = options_;
  options.weight_decay = weight_decay;
  backend.adamw(stream, {updates, scalars, options});
}

}  // namespace lockstep::optim
