#include "engine/nn/linear.h"

#include <cmath>

#include "engine/core/error.h"

namespace lockstep::nn {

Linear::Linear(std::size_t in_features, std::size_t out_features, Rng& rng,
               const LinearOptions& options)
    : in_features_(in_features), out_features_(out_features), bias_(options.bias) {
  require(in_features > 0 && out_features > 0, ErrorCode::Usage, "Linear",
          "sizes must be positive, found in_features={} and out_features={}", in_features,
          out_features);
  const double bound = 1.0 / std::sqrt(static_cast<double>(in_features));
  const Device device = options.device.value_or(default_device());
  const Shape shape{out_features, in_features};
  const Shape bias_shape{out_features};
  if (const std::optional<double> deviation = options.standard_deviation) {
    register_parameter("weight", Tensor::normal(shape, 0, *deviation, rng, options.dtype, device));
    if (bias_ == Bias::yes) {
      register_parameter("bias", Tensor::zeros(bias_shape, options.dtype, device));
    }
    return;
  }
  register_parameter("weight", Tensor::uniform(shape, -bound, bound, rng, options.dtype, device));
  if (bias_ == Bias::yes) {
    register_parameter("bias",
                       Tensor::uniform(bias_shape, -bound, bound, rng, options.dtype, device));
  }
}

const Variable& Linear::bias() const {
  static const Variable none;
  return bias_ == Bias::yes ? own_parameters()[1].second : none;
}

std::string Linear::extra_text() const {
  return fmt::format("in_features={}, out_features={}, bias={}", in_features_, out_features_,
                     bias_ == Bias::yes ? "True" : "False");
}

std::string GELU::extra_text() const {
  return form_ == GeluForm::erf ? "approximate='none'" : "approximate='tanh'";
}

}  // namespace lockstep::nn
