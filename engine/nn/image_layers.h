// The layers of images [batch, height, width, channels]: Conv2d, BatchNorm2d, pools and Residual.
//
// Their names, defaults and printed forms are PyTorch's, whose images have the channels first;
// weights get its order when they are saved (state_dict.h).
#pragma once

#include <optional>

#include "engine/autograd/ops/images.h"
#include "engine/nn/batch_norm.h"
#include "engine/nn/linear.h"
#include "engine/nn/sequential.h"

namespace lockstep::nn {

struct Conv2dOptions {
  std::size_t stride = 1;
  std::size_t padding = 0;
  Bias bias = Bias::yes;
  DType dtype = DType::float32;
  std::optional<Device> device = {};  // the parameters'; nullopt: default_device()
};

// Shapes:  x [batch, height, width, in_channels] -> y [batch, out_height, out_width, out_channels].
// Parameters: "weight" [out_channels, kernel, kernel, in_channels], then "bias" [out_channels].
// Both start uniform in [-1/sqrt(n), 1/sqrt(n)), n = in_channels * kernel * kernel, as Linear's.
// Throws Error{Usage} for a size of 0; in forward as conv2d().
class Conv2d final : public ModuleOf<Conv2d>, public ActivatedLayer {
 public:
  Conv2d(std::size_t in_channels, std::size_t out_channels, std::size_t kernel, Rng& rng,
         const Conv2dOptions& options = {});
  // Draws from default_rng().
  Conv2d(std::size_t in_channels, std::size_t out_channels, std::size_t kernel,
         const Conv2dOptions& options = {})
      : Conv2d(in_channels, out_channels, kernel, default_rng(), options) {}

  Variable forward(const Variable& x) override { return forward(x, Activation::none); }
  Variable forward(const Variable& x, Activation activation) const override;

  const Variable& weight() const { return own_parameters()[0].second; }
  Variable bias() const { return bias_ == Bias::yes ? own_parameters()[1].second : Variable(); }
  std::size_t stride() const { return windows_.stride; }
  std::size_t padding() const { return windows_.padding; }

  std::string type_name() const override { return "Conv2d"; }
  std::string extra_text() const override;

 private:
  WindowOptions windows_;
  Bias bias_;
};

// Batch normalisation of each channel over the pixels of all images: BatchNorm1d of [batch * height
// * width, channels], with the same parameters and buffers.
// Throws Error{Shape} in training for a single pixel.
class BatchNorm2d final : public ModuleOf<BatchNorm2d, BatchNorm> {
 public:
  explicit BatchNorm2d(std::size_t num_features, const BatchNormOptions& options = {})
      : ModuleOf(num_features, options) {}

  Variable forward(const Variable& x) override;

  std::string type_name() const override {
    return shares_statistics() ? "SyncBatchNorm" : "BatchNorm2d";
  }
};

// Windows of a pool are `kernel` pixels apart unless a stride is given.
struct PoolOptions {
  std::optional<std::size_t> stride;
  std::size_t padding = 0;
};

class MaxPool2d final : public ModuleOf<MaxPool2d> {
 public:
  explicit MaxPool2d(std::size_t kernel, const PoolOptions& options = {})
      : kernel_(kernel), windows_{options.stride.value_or(kernel), options.padding} {}

  Variable forward(const Variable& x) override { return max_pool2d(x, kernel_, windows_); }

  std::string type_name() const override { return "MaxPool2d"; }
  std::string extra_text() const override;

 private:
  std::size_t kernel_;
  WindowOptions windows_;
};

class AvgPool2d final : public ModuleOf<AvgPool2d> {
 public:
  explicit AvgPool2d(std::size_t kernel, const PoolOptions& options = {})
      : kernel_(kernel), windows_{options.stride.value_or(kernel), options.padding} {}

  Variable forward(const Variable& x) override { return avg_pool2d(x, kernel_, windows_); }

  std::string type_name() const override { return "AvgPool2d"; }
  std::string extra_text() const override;

 private:
  std::size_t kernel_;
  WindowOptions windows_;
};

// [batch, height, width, channels] -> [batch, channels]: PyTorch's AdaptiveAvgPool2d(1) and
// Flatten.
class GlobalAvgPool final : public ModuleOf<GlobalAvgPool> {
 public:
  Variable forward(const Variable& x) override { return global_avg_pool(x); }
  std::string type_name() const override { return "GlobalAvgPool"; }
};

// y = relu(body(x) + shortcut(x)); without a shortcut, relu(body(x) + x).
// Children: the body's under their own names, then the shortcut as "downsample". With conv1, bn1,
// relu, conv2, bn2 in the body, these are the names of torchvision's BasicBlock.
// Throws Error{Shape} in forward if the two differ in shape.
class Residual final : public ModuleOf<Residual> {
 public:
  explicit Residual(std::vector<NamedModule> body, std::shared_ptr<Module> shortcut = nullptr);

  Variable forward(const Variable& x) override;

  std::string type_name() const override { return "Residual"; }

 private:
  std::size_t body_size_;
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

}  // namespace lockstep::nn
