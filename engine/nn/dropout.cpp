#include "engine/nn/dropout.h"

#include "engine/autograd/ops/ops.h"
#include "engine/core/error.h"

namespace lockstep::nn {

Dropout::Dropout(double probability, std::uint64_t seed, std::uint32_t layer)
    : probability_(probability), seed_(seed), layer_(layer) {
  require(probability >= 0 && probability <= 1, ErrorCode::Usage, "Dropout",
          "dropout probability has to be between 0 and 1, but got {}", probability);
}

Variable Dropout::forward(const Variable& x) {
  return is_training() && probability_ > 0 ? dropout(x, probability_, seed_, layer_) : x;
}

std::string Dropout::extra_text() const {
  return fmt::format("p={}, inplace=False", python_number(probability_));
}

}  // namespace lockstep::nn
