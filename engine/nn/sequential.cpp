#include "engine/nn/sequential.h"

#include "engine/nn/activation.h"
#include "engine/nn/linear.h"

namespace lockstep::nn {

Sequential::Sequential(std::vector<std::shared_ptr<Module>> modules) {
  for (std::size_t i = 0; i < modules.size(); ++i) {
    register_child(std::to_string(i), std::move(modules[i]));
  }
  const auto is_linear = [this](std::size_t i) {
    return i < size() && dynamic_cast<const Linear*>(&(*this)[i]) != nullptr;
  };
  for (std::size_t i = 0; i < size(); ++i) {
    const auto* next = is_linear(i) && i + 1 < size()
                           ? dynamic_cast<const ActivationModule*>(&(*this)[i + 1])
                           : nullptr;
    if (next) {
      const ResultUse use = is_linear(i + 2) ? ResultUse::next_linear : ResultUse::anything;
      steps_.push_back({i, Step::Kind::fused_linear, next->activation(), use});
      ++i;
    } else {
      steps_.push_back({i, Step::Kind::module, Activation::none, ResultUse::anything});
    }
  }
}

Variable Sequential::forward(const Variable& x) {
  Variable y = x;
  for (const Step& step : steps_) {
    Module& child = (*this)[step.child];
    y = step.kind == Step::Kind::fused_linear
            ? static_cast<Linear&>(child).forward(y, step.activation, step.use)
            : child.forward(y);
  }
  return y;
}

}  // namespace lockstep::nn
