// The optimizers: SGD and AdamW.
#pragma once

#include "engine/optim/optimizer.h"

namespace lockstep::optim {

// Stochastic gradient descent.
struct SgdOptions {
  double learning_rate = 1e-3;
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;
  using Kind = kernels::SgdOptions::Kind;  // plain or nesterov
  Kind kind = Kind::plain;
};

// With gradient g, weight w, momentum buffer v and learning rate lr, per step:
//   g' = g + weight_decay * w
//   v  = g' in the first step, then momentum * v + (1 - dampening) * g'   (if momentum > 0)
//   w  = w - lr * v              plain (g' without momentum)
//   w  = w - lr * (g' + momentum * v)   Nesterov
// Throws Error{Usage} for a negative option, and for Nesterov without momentum or with dampening.
// Source: PyTorch torch.optim.SGD, formulas and defaults.
class Sgd final : public Optimizer {
 public:
  explicit Sgd(std::vector<Variable> parameters, const SgdOptions& options = {});

 private:
  void update(kernels::Backend& backend, runtime::Stream& stream,
              const std::vector<Update>& updates, const kernels::StepScalars& scalars) override;

  kernels::SgdOptions options_;
  std::vector<kernels::SgdParameter> call_;  // kept for its memory
};

// Adam with decoupled weight decay.
struct AdamWOptions {
  double learning_rate = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 1e-2;
};

// In step t = 1, 2, ... with gradient g, weight w and moments m, v (zeros at first):
//   w = w * (1 - lr * weight_decay)
//   m = beta1 * m + (1 - beta1) * g;   v = beta2 * v + (1 - beta2) * g^2
//   w = w - lr / (1 - beta1^t) * m / (sqrt(v) / sqrt(1 - beta2^t) + epsilon)
// Throws Error{Usage} for a negative option or a beta outside [0, 1).
// Source: PyTorch torch.optim.AdamW, formulas and defaults.
class AdamW final : public Optimizer {
 public:
  explicit AdamW(std::vector<Variable> parameters, const AdamWOptions& options = {});

 private:
  void update(kernels::Backend& backend, runtime::Stream& stream,
              const std::vector<Update>& updates, const kernels::StepScalars& scalars) override;

  kernels::AdamWOptions options_;
  std::vector<kernels::AdamWParameter> call_;  // kept for its memory
};

}  // namespace lockstep::optim
