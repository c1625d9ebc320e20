#include "engine/nn/sequence_layers.h"

#include <fmt/format.h>

#include "engine/core/error.h"

namespace lockstep::nn {

Embedding::Embedding(std::size_t num_rows, std::size_t channels, Rng& rng,
                     double standard_deviation, const Placement& placement, std::size_t padding) {
  require(num_rows > 0 && channels > 0, ErrorCode::Usage, "Embedding",
          "sizes must be positive, found {} rows of {} channels", num_rows, channels);
  const Device device = placement.device.value_or(default_device());
  Tensor weight =
      Tensor::normal({num_rows, channels}, 0, standard_deviation, rng, placement.dtype, device);
  if (padding > 0) {
    const Tensor drawn = weight;
    weight = Tensor::zeros({num_rows + padding, channels}, placement.dtype, device);
    weight.rows(0, num_rows).copy_from(drawn);
  }
  register_parameter("weight", weight, padding);
}

std::string Embedding::extra_text() const {
  return fmt::format("{}, {}", num_rows(), weight().shape()[1]);
}

LayerNorm::LayerNorm(std::size_t features, double epsilon, const Placement& placement)
    : epsilon_(epsilon) {
  require(features > 0, ErrorCode::Usage, "LayerNorm", "features must be positive");
  const Device device = placement.device.value_or(default_device());
  register_parameter("weight", Tensor::full({features}, 1, placement.dtype, device));
  register_parameter("bias", Tensor::zeros({features}, placement.dtype, device));
}

std::string LayerNorm::extra_text() const {
  return fmt::format("({},), eps={}, elementwise_affine=True, bias=True",
                     own_parameters()[0].second.shape()[0], python_number(epsilon_));
}

Variable over_rows(const Linear& layer, const Variable& x, Activation activation) {
  const Shape& shape = x.shape();
  require(shape.num_dims() == 3, ErrorCode::Shape, "Linear",
          "expected sequences [batch, length, channels], found {}", lockstep::to_string(shape));
  const Variable y = layer.forward(reshape(x, {shape[0] * shape[1], shape[2]}), activation);
  return reshape(y, {shape[0], shape[1], layer.out_features()});
}

LinearOptions starting_with(double deviation, const Placement& placement) {
  LinearOptions options;
  options.standard_deviation = deviation;
  options.dtype = placement.dtype;
  options.device = placement.device;
  return options;
}

CausalSelfAttention::CausalSelfAttention(std::size_t channels, std::size_t heads, Rng& rng,
                                         double deviation, double residual_deviation,
                                         const Placement& placement)
    : heads_(heads),
      c_attn_(channels, 3 * channels, rng, starting_with(deviation, placement)),
      c_proj_(channels, channels, rng, starting_with(residual_deviation, placement)) {
  require(heads > 0 && channels % heads == 0, ErrorCode::Usage, "CausalSelfAttention",
          "{} heads do not divide {} channels", heads, channels);
  register_child("c_attn", c_attn_);
  register_child("c_proj", c_proj_);
}

std::string CausalSelfAttention::extra_text() const {
  return fmt::format("heads={}", heads_);
}

}  // namespace lockstep::nn
