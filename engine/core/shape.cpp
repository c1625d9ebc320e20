#include "engine/core/shape.h"

#include <algorithm>

#include <fmt/ranges.h>

#include "engine/core/error.h"

namespace lockstep {

Shape::Shape(std::initializer_list<std::size_t> sizes)
    : Shape(std::span<const std::size_t>(sizes.begin(), sizes.size())) {}

Shape::Shape(std::span<const std::size_t> sizes) : num_dims_(sizes.size()) {
  require(sizes.size() <= kMaxDims, ErrorCode::Shape, "shape",
          "at most {} dimensions are supported, found {}", kMaxDims, sizes.size());
  std::copy(sizes.begin(), sizes.end(), sizes_.begin());
}

std::size_t Shape::num_elements() const {
  std::size_t count = 1;
  for (std::size_t dim = 0; dim < num_dims_; ++dim) count *= sizes_[dim];
  return count;
}

std::size_t Shape::row_elements() const {
  std::size_t count = 1;
  for (std::size_t dim = 1; dim < num_dims_; ++dim) count *= sizes_[dim];
  return count;
}

Shape Shape::with(std::size_t dim, std::size_t size) const {
  Shape result = *this;
  result.sizes_[dim] = size;
  return result;
}

bool Shape::operator==(const Shape& other) const {
  return std::equal(sizes_.begin(), sizes_.begin() + num_dims_, other.sizes_.begin(),
                    other.sizes_.begin() + other.num_dims_);
}

std::string to_string(const Shape& shape) {
  return fmt::format("[{}]", fmt::join(shape.sizes(), ", "));
}

}  // namespace lockstep
