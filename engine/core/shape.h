// The sizes of a tensor, outermost first; row-major. At most Shape::kMaxDims of them, kept inline
// so that making a tensor allocates nothing for its shape.
#pragma once

#include <array>
#include <cstddef>
#include <initializer_list>
#include <span>
#include <string>

#include "engine/core/dtype.h"

namespace lockstep {

class Shape {
 public:
  static constexpr std::size_t kMaxDims = 6;

  Shape() = default;  // a scalar: no dimensions, one element
  Shape(std::initializer_list<std::size_t> sizes);
  // Throws Error{Shape} for more than kMaxDims sizes, and where the sizes that are not 0 multiply
  // to more than kMaxSize (checked.h): so no product of sizes below wraps around.
  explicit Shape(std::span<const std::size_t> sizes);

  std::size_t num_dims() const { return num_dims_; }
  // Throws Error{Shape} unless dim < num_dims().
  std::size_t operator[](std::size_t dim) const {
    if (dim >= num_dims_) [[unlikely]]
      fail_dim(dim);
    return sizes_[dim];
  }
  std::size_t num_elements() const {
    std::size_t count = 1;
    for (std::size_t dim = 0; dim < num_dims_; ++dim) count *= sizes_[dim];
    return count;
  }

  // Elements of one index along dim 0: 12 for [5, 3, 4]; 1 for a scalar or [n].
  std::size_t row_elements() const;

  // The same shape with another size along dim. Throws as operator[] and the constructor do.
  Shape with(std::size_t dim, std::size_t size) const;

  std::span<const std::size_t> sizes() const { return {sizes_.data(), num_dims_}; }

  bool operator==(const Shape& other) const;

 private:
  [[noreturn]] void fail_dim(std::size_t dim) const;

  std::array<std::size_t, kMaxDims> sizes_{};
  std::size_t num_dims_ = 0;
};

// "[30, 5]"; "[]" for a scalar.
std::string to_string(const Shape& shape);

// Bytes of all elements. Throws Error{Shape} that names shape and dtype above kMaxSize; also where
// a size of 0 would hide that the others are too large.
std::size_t num_bytes_of(const Shape& shape, DType dtype);

}  // namespace lockstep
