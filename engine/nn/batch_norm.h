// BatchNorm1d, and the base that it shares with the batch norm of images.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "engine/autograd/ops/ops.h"
#include "engine/nn/module.h"

namespace lockstep::nn {

struct BatchNormOptions {
  double epsilon = 1e-5;
  double momentum = 0.1;  // weight of the batch in the running statistics
  enum class Affine { no, yes } affine = Affine::yes;
  DType dtype = DType::float32;
  std::optional<Device> device = {};  // nullopt: default_device()
};

// The base of the batch norms of rows and of images (image_layers.h).
class BatchNorm : public Module {
 public:
  BatchNorm(std::size_t num_features, const BatchNormOptions& options);
  std::string extra_text() const override;

  // From now on a batch is the rows of all replicas (parallel/sync_batch_norm.h); with nullptr it
  // is this one's own rows again.
  void share_statistics(std::shared_ptr<StatisticsExchange> replicas) {
    replicas_ = std::move(replicas);
  }
  bool shares_statistics() const { return replicas_ != nullptr; }

 protected:
  BatchNorm(const BatchNorm&) = default;
  Variable normalise(const Variable& rows);

 private:
  std::size_t num_features_;
  BatchNormOptions options_;
  std::shared_ptr<StatisticsExchange> replicas_;
};

// Shapes:  x [batch, num_features] -> y, the same.
// In training each feature is normalised by its mean and biased variance over the batch, which are
// added to the running statistics (the variance unbiased) with `momentum`; evaluation uses the
// running statistics. Then y = weight * x^ + bias, if affine.
// Parameters: "weight" (ones), "bias" (zeros). Buffers: "running_mean" (zeros), "running_var"
// (ones), "num_batches_tracked" (int64 scalar).
// Throws Error{Shape} in training for a batch of one row.
// Source: PyTorch nn.BatchNorm1d.
class BatchNorm1d final : public ModuleOf<BatchNorm1d, BatchNorm> {
 public:
  explicit BatchNorm1d(std::size_t num_features, const BatchNormOptions& options = {})
      : ModuleOf(num_features, options) {}

  Variable forward(const Variable& x) override { return normalise(x); }

  std::string type_name() const override {
    return shares_statistics() ? "SyncBatchNorm" : "BatchNorm1d";
  }
};

}  // namespace lockstep::nn
