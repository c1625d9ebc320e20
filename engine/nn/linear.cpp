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
  register_parameter(
      "weight", Tensor::uniform({out_features, in_features}, -bound, bound, rng, options.dtype));
  if (bias_ == Bias::yes) {
    register_parameter("bias", Tensor::uniform({out_features}, -bound, bound, rng, options.dtype));
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

}  // namespace lockstep::nn
