// Modules whose forward pass is written in the test that needs it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/nn/layers.h"
#include "engine/nn/module.h"
#include "tests/support/devices.h"

namespace lockstep::testing {

// Children are named "0", "1", ...; forward() calls the given function with the module that runs,
// which in a replica is the replica.
class FunctionModule final : public nn::ModuleOf<FunctionModule> {
 public:
  using Forward = std::function<Variable(nn::Module& self, const Variable& x)>;

  FunctionModule(const std::vector<std::shared_ptr<nn::Module>>& children, Forward forward)
      : forward_(std::move(forward)) {
    for (std::size_t i = 0; i < children.size(); ++i) {
      register_child(std::to_string(i), children[i]);
    }
  }
  Variable forward(const Variable& x) override { return forward_(*this, x); }
  std::string type_name() const override { return "FunctionModule"; }

 private:
  Forward forward_;
};

inline std::shared_ptr<nn::Module> make_function_module(
    const std::vector<std::shared_ptr<nn::Module>>& children, FunctionModule::Forward forward) {
  return std::make_shared<FunctionModule>(children, std::move(forward));
}

inline Variable call_child(nn::Module& module, std::size_t index, const Variable& x) {
  return (*module.children()[index].second)(x);
}

inline std::shared_ptr<nn::Linear> make_linear(std::size_t in, std::size_t out, std::uint64_t seed,
                                               DType dtype = DType::float64) {
  Rng rng(seed);
  nn::LinearOptions options;
  options.dtype = dtype;
  return std::make_shared<nn::Linear>(in, out, rng, options);
}

inline std::vector<Device> cpu_devices(std::size_t count) {
  std::vector<Device> devices;
  for (std::size_t i = 0; i < count; ++i) devices.push_back(test_device(static_cast<int>(i)));
  return devices;
}

}  // namespace lockstep::testing
