// Stochastic gradient descent.
#pragma once

#include "engine/optim/optimizer.h"

namespace lockstep::optim {

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

}  // namespace lockstep::optim
