// Batch normalisation of rows of features.
#pragma once

#include "engine/nn/module.h"

namespace lockstep::nn {

struct BatchNormOptions {
  double epsilon = 1e-5;
  double momentum = 0.1;  // weight of the batch in the running statistics
  enum class Affine { no, yes } affine = Affine::yes;
  DType dtype = DType::float32;
};

// Shapes:  x [batch, num_features] -> y, the same.
// In training each feature is normalised by its mean and biased variance over the batch, which
// enter the running statistics (the variance unbiased) with `momentum`; in evaluation the running
// statistics are used. Then y = weight * x^ + bias, if affine.
// Parameters: "weight" (ones), "bias" (zeros). Buffers: "running_mean" (zeros), "running_var"
// (ones), "num_batches_tracked" (int64 scalar).
// Throws Error{Shape} in training for a batch of one row.
// Source: PyTorch nn.BatchNorm1d.
class BatchNorm1d final : public ModuleOf<BatchNorm1d> {
 public:
  explicit BatchNorm1d(std::size_t num_features, const BatchNormOptions& options = {});

  Variable forward(const Variable& x) override;

  std::string type_name() const override { return "BatchNorm1d"; }
  std::string extra_text() const override;

 private:
  std::size_t num_features_;
  BatchNormOptions options_;
};

}  // namespace lockstep::nn
