#include "engine/nn/image_layers.h"

#include <cmath>

#include <fmt/format.h>

#include "engine/core/error.h"

namespace lockstep::nn {

Conv2d::Conv2d(std::size_t in_channels, std::size_t out_channels, std::size_t kernel, Rng& rng,
               const Conv2dOptions& options)
    : windows_{options.stride, options.padding}, bias_(options.bias) {
  require(in_channels > 0 && out_channels > 0 && kernel > 0, ErrorCode::Usage, "Conv2d",
          "sizes must be positive, found in_channels={}, out_channels={} and kernel_size={}",
          in_channels, out_channels, kernel);
  require(options.stride > 0, ErrorCode::Usage, "Conv2d",
          "non-positive stride is not supported, found stride=0");
  const double bound = 1.0 / std::sqrt(static_cast<double>(in_channels * kernel * kernel));
  const Device device = options.device.value_or(default_device());
  register_parameter("weight", Tensor::uniform({out_channels, kernel, kernel, in_channels}, -bound,
                                               bound, rng, options.dtype, device));
  if (bias_ == Bias::yes) {
    register_parameter("bias",
                       Tensor::uniform({out_channels}, -bound, bound, rng, options.dtype, device));
  }
}

Variable Conv2d::forward(const Variable& x, Activation activation) const {
  return conv2d(x, weight(), bias_ == Bias::yes ? own_parameters()[1].second : Variable(), windows_,
                activation);
}

std::string Conv2d::extra_text() const {
  const Shape& shape = weight().shape();
  std::string text = fmt::format("{}, {}, kernel_size=({}, {}), stride=({}, {})", shape[3],
                                 shape[0], shape[1], shape[2], stride(), stride());
  if (padding() > 0) text += fmt::format(", padding=({}, {})", padding(), padding());
  if (bias_ == Bias::no) text += ", bias=False";
  return text;
}

Variable BatchNorm2d::forward(const Variable& x) {
  const Shape& images = x.shape();
  require(images.num_dims() == 4, ErrorCode::Shape, "BatchNorm2d",
          "expected 4D input (got {}D input)", images.num_dims());
  const std::size_t num_pixels = images[0] * images[1] * images[2];
  require(!is_training() || shares_statistics() || num_pixels != 1, ErrorCode::Shape, "BatchNorm2d",
          "expected more than 1 value per channel when training, got input size {}",
          lockstep::to_string(images));
  return reshape(normalise(reshape(x, {num_pixels, images[3]})), images);
}

std::string MaxPool2d::extra_text() const {
  return fmt::format("kernel_size={}, stride={}, padding={}, dilation=1, ceil_mode=False", kernel_,
                     windows_.stride, windows_.padding);
}

std::string AvgPool2d::extra_text() const {
  return fmt::format("kernel_size={}, stride={}, padding={}", kernel_, windows_.stride,
                     windows_.padding);
}

Residual::Residual(std::vector<NamedModule> body, std::shared_ptr<Module> shortcut)
    : body_size_(body.size()) {
  for (NamedModule& module : body)
    register_child(std::move(module.first), std::move(module.second));
  if (shortcut) register_child("downsample", std::move(shortcut));
}

Variable Residual::forward(const Variable& x) {
  const std::span<const NamedModule> modules(children());
  const Variable y = run_in_turn(modules.first(body_size_), x);
  return relu(add(y, body_size_ < modules.size() ? (*modules[body_size_].second)(x) : x));
}

Variable Flatten::forward(const Variable& x) {
  const Shape& shape = x.shape();
  const int num_dims = static_cast<int>(shape.num_dims());
  const int first = start_dim_ < 0 ? start_dim_ + num_dims : start_dim_;
  const int last = end_dim_ < 0 ? end_dim_ + num_dims : end_dim_;
  require(0 <= first && first <= last && last < num_dims, ErrorCode::Shape, "Flatten",
          "input {} has no dimensions {} to {}", lockstep::to_string(shape), start_dim_, end_dim_);
  if (num_dims == 4 && first == 1 && last == 3) return flatten_images(x);
  std::vector<std::size_t> sizes;
  for (int dim = 0; dim < num_dims; ++dim) {
    const std::size_t size = shape[static_cast<std::size_t>(dim)];
    if (first < dim && dim <= last) {
      sizes.back() *= size;
    } else {
      sizes.push_back(size);
    }
  }
  return reshape(x, Shape(std::span<const std::size_t>(sizes)));
}

std::string Flatten::extra_text() const {
  return fmt::format("start_dim={}, end_dim={}", start_dim_, end_dim_);
}

}  // namespace lockstep::nn
