// y = x * W^T + b, for a batch of rows.
#pragma once

#include "engine/autograd/ops/ops.h"
#include "engine/core/rng.h"
#include "engine/nn/module.h"

namespace lockstep::nn {

enum class Bias { no, yes };

struct LinearOptions {
  Bias bias = Bias::yes;
  DType dtype = DType::float32;
};

// Shapes:  x [batch, in_features] -> y [batch, out_features].
// Parameters: "weight" [out_features, in_features], then "bias" [out_features].
// Both start uniform in [-1/sqrt(in_features), 1/sqrt(in_features)), drawn from rng in that order:
// PyTorch's default (kaiming_uniform with a = sqrt(5)), whose distribution, not whose values, this
// is. float32 values are the float64 ones, rounded.
// Throws Error{Usage} for a size of 0.
class Linear final : public ModuleOf<Linear> {
 public:
  Linear(std::size_t in_features, std::size_t out_features, Rng& rng,
         const LinearOptions& options = {});

  Variable forward(const Variable& x) override { return linear(x, weight(), bias()); }

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

}  // namespace lockstep::nn
