#include "engine/nn/flatten.h"

#include "engine/autograd/ops/ops.h"
#include "engine/core/error.h"

namespace lockstep::nn {

Variable Flatten::forward(const Variable& x) {
  const Shape& shape = x.shape();
  const int num_dims = static_cast<int>(shape.num_dims());
  const int first = start_dim_ < 0 ? start_dim_ + num_dims : start_dim_;
  const int last = end_dim_ < 0 ? end_dim_ + num_dims : end_dim_;
  require(0 <= first && first <= last && last < num_dims, ErrorCode::Shape, "Flatten",
          "input {} has no dimensions {} to {}", lockstep::to_string(shape), start_dim_, end_dim_);
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
