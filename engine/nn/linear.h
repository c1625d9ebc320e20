// Linear, and the activations that it can apply in its own operation.
#pragma once

#include <cstddef>
#include <optional>

#include "engine/autograd/ops/ops.h"
#include "engine/core/rng.h"
#include "engine/nn/module.h"

namespace lockstep::nn {

enum class Bias { no, yes };

struct LinearOptions {
  Bias bias = Bias::yes;
  DType dtype = DType::float32;
  std::optional<Device> device = {};  // the parameters'; nullopt: default_device()
  // Weights start normal with this standard deviation, and biases at zero; nullopt: PyTorch's
  // default.
  std::optional<double> standard_deviation = {};
};

// A layer that can apply an activation in its own operation. In a Sequential it does so with the
// activation that follows it.
class ActivatedLayer {
 public:
  virtual ~ActivatedLayer() = default;
  virtual Variable forward(const Variable& x, Activation activation) const = 0;
};

// y = x * W^T + b, for a batch of rows.
// Shapes:  x [batch, in_features] -> y [batch, out_features].
// Parameters: "weight" [out_features, in_features], then "bias" [out_features].
// Both start uniform in [-1/sqrt(in_features), 1/sqrt(in_features)), drawn from rng in that order.
// PyTorch's default (kaiming_uniform with a = sqrt(5)) has the same distribution, but other values.
// float32 values are the float64 ones, rounded.
// Throws Error{Usage} for a size of 0.
class Linear final : public ModuleOf<Linear>, public ActivatedLayer {
 public:
  Linear(std::size_t in_features, std::size_t out_features, Rng& rng,
         const LinearOptions& options = {});
  // Draws from default_rng().
  Linear(std::size_t in_features, std::size_t out_features, const LinearOptions& options = {})
      : Linear(in_features, out_features, default_rng(), options) {}

  Variable forward(const Variable& x) override { return linear(x, weight(), bias()); }
  Variable forward(const Variable& x, Activation activation) const override {
    return linear(x, weight(), bias(), activation);
  }

  std::size_t in_features() const { return in_features_; }
  std::size_t out_features() const { return out_features_; }
  const Variable& weight() const { return own_parameters()[0].second; }
  // Undefined if there is none.
  const Variable& bias() const;

  std::string type_name() const override { return "Linear"; }
  std::string extra_text() const override;

 private:
  std::size_t in_features_;
  std::size_t out_features_;
  Bias bias_;
};

// Activations as modules: element by element, for any shape. In a Sequential, one that follows an
// ActivatedLayer is part of that layer's operation.
class ActivationModule {
 public:
  virtual ~ActivationModule() = default;
  virtual Activation activation() const = 0;
};

template <typename Derived>
class ActivationOf : public ModuleOf<Derived>, public ActivationModule {
 public:
  Variable forward(const Variable& x) override { return activate(x, activation()); }
};

class ReLU final : public ActivationOf<ReLU> {
 public:
  Activation activation() const override { return Activation::relu; }
  std::string type_name() const override { return "ReLU"; }
};

class Tanh final : public ActivationOf<Tanh> {
 public:
  Activation activation() const override { return Activation::tanh; }
  std::string type_name() const override { return "Tanh"; }
};

class Sigmoid final : public ActivationOf<Sigmoid> {
 public:
  Activation activation() const override { return Activation::sigmoid; }
  std::string type_name() const override { return "Sigmoid"; }
};

// PyTorch's two forms: exact, with erf (approximate='none'), and the tanh approximation.
enum class GeluForm { erf, tanh };

class GELU final : public ActivationOf<GELU> {
 public:
  explicit GELU(GeluForm form = GeluForm::erf) : form_(form) {}
  Activation activation() const override {
    return form_ == GeluForm::erf ? Activation::gelu_erf : Activation::gelu_tanh;
  }
  std::string type_name() const override { return "GELU"; }
  std::string extra_text() const override;

 private:
  GeluForm form_;
};

}  // namespace lockstep::nn
