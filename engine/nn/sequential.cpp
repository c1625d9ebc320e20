#include "engine/nn/sequential.h"

#include "engine/core/error.h"
#include "engine/nn/activation.h"
#include "engine/nn/linear.h"

namespace lockstep::nn {

Sequential::Sequential(std::vector<std::shared_ptr<Module>> modules) {
  for (std::size_t i = 0; i < modules.size(); ++i) {
    register_child(std::to_string(i), std::move(modules[i]));
  }
  const auto linear_at = [this](std::size_t i) {
    return i < size() && dynamic_cast<const Linear*>(&(*this)[i]) != nullptr;
  };
  const auto activation_at = [this](std::size_t i) {
    return i < size() ? dynamic_cast<const ActivationModule*>(&(*this)[i]) : nullptr;
  };
  for (std::size_t i = 0; i < size();) {
    Step step{{}, i};
    while (linear_at(i)) {
      const ActivationModule* activation = activation_at(i + 1);
      step.chain.push_back({i, activation ? activation->activation() : Activation::none});
      i += activation ? 2 : 1;
    }
    if (step.chain.empty()) ++i;
    steps_.push_back(std::move(step));
  }
}

Module& Sequential::operator[](std::size_t index) const {
  require(index < size(), ErrorCode::Usage, "Sequential", "has {} modules, found index {}", size(),
          index);
  return *children()[index].second;
}

std::vector<LinearLayer> Sequential::layers_of(const Step& step) const {
  std::vector<LinearLayer> layers;
  for (const Step::Layer& layer : step.chain) {
    const auto& child = static_cast<const Linear&>((*this)[layer.linear]);
    layers.push_back({child.weight(), child.bias(), layer.activation});
  }
  return layers;
}

Variable Sequential::run(std::span<const Step> steps, Variable x) {
  for (const Step& step : steps) {
    x = step.chain.empty() ? (*this)[step.child](x) : linear_chain(x, layers_of(step));
  }
  return x;
}

Variable Sequential::forward(const Variable& x) {
  return run(steps_, x);
}

Variable Sequential::forward_cross_entropy(const Variable& x, const Tensor& labels,
                                           Reduction reduction, Tensor grad) {
  if (steps_.empty() || steps_.back().chain.empty()) {
    return Module::forward_cross_entropy(x, labels, reduction, std::move(grad));
  }
  const std::span<const Step> before(steps_.data(), steps_.size() - 1);
  return linear_cross_entropy(run(before, x), layers_of(steps_.back()), labels, reduction,
                              std::move(grad));
}

}  // namespace lockstep::nn
