#include "engine/core/shape.h"

#include <algorithm>

#include <fmt/ranges.h>

#include "engine/core/error.h"

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

Shape::Shape(std::initializer_list<std::size_t> sizes)
    : Shape(std::span<const std::size_t>(sizes.begin(), sizes.size())) {}

Shape::Shape(std::span<const std::size_t> sizes) : num_dims_(sizes.size()) {
  require(sizes.size() <= kMaxDims, ErrorCode::Shape, "shape",
          "at most {} dimensions are supported, found {}", kMaxDims, sizes.size());
  std::copy(sizes.begin(), sizes.end(), sizes_.begin());
  if (!product_of_nonzero(sizes)) {
    fail(ErrorCode::Shape, "shape", "{} has more than {} elements, the most that can be counted",
         to_string(*this), kMaxSize);
  }
}

std::size_t Shape::row_elements() const {
  std::size_t count = 1;
  for (std::size_t dim = 1; dim < num_dims_; ++dim) count *= sizes_[dim];
  return count;
}

Shape Shape::with(std::size_t dim, std::size_t size) const {
  if (dim >= num_dims_) fail_dim(dim);
  std::array<std::size_t, kMaxDims> sizes = sizes_;
  sizes[dim] = size;
  return Shape(std::span<const std::size_t>(sizes).first(num_dims_));
}

void Shape::fail_dim(std::size_t dim) const {
  fail(ErrorCode::Shape, "shape", "{} has {} dimensions, and there is no dimension {}",
       to_string(*this), num_dims_, dim);
}

bool Shape::operator==(const Shape& other) const {
  return std::equal(sizes_.begin(), sizes_.begin() + num_dims_, other.sizes_.begin(),
                    other.sizes_.begin() + other.num_dims_);
}

std::string to_string(const Shape& shape) {
  return fmt::format("[{}]", fmt::join(shape.sizes(), ", "));
}

std::size_t num_bytes_of(const Shape& shape, DType dtype) {
  if (!product_of_nonzero(shape.sizes(), size_of(dtype))) {
    fail(ErrorCode::Shape, "shape", "{} {} has more than {} bytes, the most that can be addressed",
         to_string(shape), to_string(dtype), kMaxSize);
  }
  return shape.num_elements() * size_of(dtype);
}

}  // namespace lockstep
