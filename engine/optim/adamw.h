// Adam with decoupled weight decay.
#pragma once

#include "engine/optim/optimizer.h"

namespace lockstep::optim {

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
