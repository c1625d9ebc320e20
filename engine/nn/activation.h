// Activations as modules: element by element, any shape. Sequential fuses one that follows a Linear
// into that layer's operation.
#pragma once

#include "engine/autograd/ops/ops.h"
#include "engine/nn/module.h"

namespace lockstep::nn {

// A module that is nothing but an activation.
class ActivationModule {
 public:
  virtual ~ActivationModule() = default;
  virtual Activation activation() const = 0;
};

class ReLU final : public ModuleOf<ReLU>, public ActivationModule {
 public:
  Activation activation() const override { return Activation::relu; }
  Variable forward(const Variable& x) override;
  std::string type_name() const override { return "ReLU"; }
};

// PyTorch's two forms: exact, with erf (approximate='none'), and the tanh approximation.
enum class GeluForm { erf, tanh };

class GELU final : public ModuleOf<GELU>, public ActivationModule {
 public:
  explicit GELU(GeluForm form = GeluForm::erf) : form_(form) {}
  Activation activation() const override;
  Variable forward(const Variable& x) override;
  std::string type_name() const override { return "GELU"; }
  std::string extra_text() const override;

 private:
  GeluForm form_;
};

class Tanh final : public ModuleOf<Tanh>, public ActivationModule {
 public:
  Activation activation() const override { return Activation::tanh; }
  Variable forward(const Variable& x) override;
  std::string type_name() const override { return "Tanh"; }
};

class Sigmoid final : public ModuleOf<Sigmoid>, public ActivationModule {
 public:
  Activation activation() const override { return Activation::sigmoid; }
  Variable forward(const Variable& x) override;
  std::string type_name() const override { return "Sigmoid"; }
};

}  // namespace lockstep::nn
