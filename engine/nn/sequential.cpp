#include "engine/nn/sequential.h"

#include "engine/core/error.h"
#include "engine/nn/linear.h"

namespace lockstep::nn {

Sequential::Sequential(std::vector<std::shared_ptr<Module>> modules) {
  for (std::size_t i = 0; i < modules.size(); ++i) {
    register_child(std::to_string(i), std::move(modules[i]));
  }
}

std::shared_ptr<Sequential> Sequential::with_names(std::vector<NamedModule> modules) {
  auto result = std::make_shared<Sequential>(std::vector<std::shared_ptr<Module>>());
  for (NamedModule& module : modules) {
    result->register_child(std::move(module.first), std::move(module.second));
  }
  return result;
}

Module& Sequential::operator[](std::size_t index) const {
  require(index < size(), ErrorCode::Usage, "Sequential", "has {} modules, found index {}", size(),
          index);
  return *children()[index].second;
}

Variable run_in_turn(std::span<const NamedModule> modules, const Variable& x) {
  Variable y = x;
  for (std::size_t i = 0; i < modules.size(); ++i) {
    Module& module = *modules[i].second;
    const auto* layer = dynamic_cast<const ActivatedLayer*>(&module);
    const auto* next = layer && i + 1 < modules.size()
                           ? dynamic_cast<const ActivationModule*>(modules[i + 1].second.get())
                           : nullptr;
    if (next) {
      y = module.run_forward([&] { return layer->forward(y, next->activation()); });
      ++i;
    } else {
      y = module(y);
    }
  }
  return y;
}

}  // namespace lockstep::nn
