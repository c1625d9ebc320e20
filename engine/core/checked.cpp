#include "engine/core/checked.h"

namespace lockstep {

std::optional<std::size_t> product_of_nonzero(std::span<const std::size_t> sizes,
                                              std::size_t unit) {
  for (const std::size_t size : sizes) {
    if (size != 0 && !multiply_fits(unit, size, unit)) return std::nullopt;
  }
  return unit;
}

std::size_t checked_product(std::string_view operation, std::size_t a, std::size_t b) {
  std::size_t product = 0;
  require(multiply_fits(a, b, product), ErrorCode::Shape, operation,
          "{} times {} is above {}, the largest size there is", a, b, kMaxSize);
  return product;
}

std::size_t checked_sum(std::string_view operation, std::size_t a, std::size_t b) {
  require(a <= kMaxSize && b <= kMaxSize - a, ErrorCode::Shape, operation,
          "{} plus {} is above {}, the largest size there is", a, b, kMaxSize);
  return a + b;
}

}  // namespace lockstep
