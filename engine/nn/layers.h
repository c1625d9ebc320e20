// The layers: Linear, activations, BatchNorm1d, Dropout, Flatten, and Sequential, which runs a list
// of them. image_layers.h has those for images.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "engine/autograd/ops/ops.h"
#include "engine/core/rng.h"
#include "engine/nn/module.h"

namespace lockstep::nn {

// Linear: y = x * W^T + b, for a batch of rows.
enum class Bias { no, yes };

struct LinearOptions {
  Bias bias = Bias::yes;
  DType dtype = DType::float32;
  std::optional<Device> device = {};  // of the parameters; nullopt: default_device()
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

// Shapes:  x [batch, in_features] -> y [batch, out_features].
// Parameters: "weight" [out_features, in_features], then "bias" [out_features].
// Both start uniform in [-1/sqrt(in_features), 1/sqrt(in_features)), drawn from rng in that order.
// That is the distribution of PyTorch's default (kaiming_uniform with a = sqrt(5)), though not its
// values. float32 values are the float64 ones, rounded.
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

// Batch normalisation of rows of features.
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
  void share_statistics(std::shared_ptr<ReplicaSums> replicas) { replicas_ = std::move(replicas); }
  bool shares_statistics() const { return replicas_ != nullptr; }

 protected:
  BatchNorm(const BatchNorm&) = default;
  Variable normalise(const Variable& rows);

 private:
  std::size_t num_features_;
  BatchNormOptions options_;
  std::shared_ptr<ReplicaSums> replicas_;
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

// Dropout: in training zeroes each element with probability p and scales the others by 1/(1-p).
// The mask depends only on (seed, training step, layer, global row), so any sharding of a batch
// over replicas or ranks draws the same one, and every step draws another. Optimizer, DataLoader
// and the parallel wrappers keep count of step and row (core/thread_context.h); `layer` is a number
// that no other Dropout of the model has, and one that is called twice in a step draws the same
// mask twice. Evaluation passes the input on. Throws Error{Usage} unless p is in [0, 1].
class Dropout final : public ModuleOf<Dropout> {
 public:
  Dropout(double probability, std::uint64_t seed, std::uint32_t layer);

  Variable forward(const Variable& x) override;

  std::string type_name() const override { return "Dropout"; }
  std::string extra_text() const override;

 private:
  double probability_;
  std::uint64_t seed_;
  std::uint32_t layer_;
};

// [batch, a, b, ...] -> [batch, a * b * ...]: shares memory, copies nothing. Images [batch, height,
// width, channels] are copied to PyTorch's order, channel by channel, if all their dimensions are
// joined.
// Joins dimensions start_dim to end_dim (both included; negative ones count from the end).
// Throws Error{Shape} in forward if the input lacks them.
class Flatten final : public ModuleOf<Flatten> {
 public:
  explicit Flatten(int start_dim = 1, int end_dim = -1)
      : start_dim_(start_dim), end_dim_(end_dim) {}

  Variable forward(const Variable& x) override;

  std::string type_name() const override { return "Flatten"; }
  std::string extra_text() const override;

 private:
  int start_dim_;
  int end_dim_;
};

using NamedModule = std::pair<std::string, std::shared_ptr<Module>>;

// The output of each module is the input of the next. An ActivatedLayer and the activation after it
// run as one operation (and one node in the graph), with the same results.
Variable run_in_turn(std::span<const NamedModule> modules, const Variable& x);

// Modules one after another. Children are named "0", "1", "2", ..., or have names of their own, as
// in PyTorch's OrderedDict.
class Sequential final : public ModuleOf<Sequential> {
 public:
  explicit Sequential(std::vector<std::shared_ptr<Module>> modules);
  static std::shared_ptr<Sequential> with_names(std::vector<NamedModule> modules);

  Variable forward(const Variable& x) override { return run_in_turn(children(), x); }

  std::size_t size() const { return children().size(); }
  // Throws Error{Usage} unless index < size().
  Module& operator[](std::size_t index) const;

  std::string type_name() const override { return "Sequential"; }
};

}  // namespace lockstep::nn
