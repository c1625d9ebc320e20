// Shape, and arithmetic on sizes that never wraps around: an overflow is an error where it arises.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "engine/core/dtype.h"
#include "engine/core/error.h"

namespace lockstep {

// The largest number of elements or bytes: differences of sizes fit into std::ptrdiff_t, as kernels
// need.
inline constexpr std::size_t kMaxSize = PTRDIFF_MAX;

// Writes a * b and returns true, or returns false if it is above kMaxSize.
constexpr bool multiply_fits(std::size_t a, std::size_t b, std::size_t& product) {
  return !__builtin_mul_overflow(a, b, &product) && product <= kMaxSize;
}

// unit times all sizes except zeros, so that a zero does not hide that the others are too large.
// Empty above kMaxSize.
std::optional<std::size_t> product_of_nonzero(std::span<const std::size_t> sizes,
                                              std::size_t unit = 1);

// a * b and a + b. Both throw Error{Shape}, tagged with `operation`, above kMaxSize.
std::size_t checked_product(std::string_view operation, std::size_t a, std::size_t b);
std::size_t checked_sum(std::string_view operation, std::size_t a, std::size_t b);

// The same value in another integer type. Throws Error{Shape} that names `what` it counts if the
// type lacks that value.
template <std::integral To, std::integral From>
To checked_narrow(std::string_view operation, std::string_view what, From value) {
  require(std::in_range<To>(value), ErrorCode::Shape, operation,
          "{} must fit into {} bits, found {}", what, 8 * sizeof(To), value);
  return static_cast<To>(value);
}

// The sizes of a tensor, outermost first; row-major. At most Shape::kMaxDims of them, kept inline
// so that making a tensor allocates nothing for its shape.
class Shape {
 public:
  static constexpr std::size_t kMaxDims = 6;

  Shape() = default;  // a scalar: no dimensions, one element
  Shape(std::initializer_list<std::size_t> sizes);
  // Throws Error{Shape} for more than kMaxDims sizes, and if the sizes other than 0 multiply to
  // more than kMaxSize, so that no product of sizes wraps around later.
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

  // Elements per index along dim 0: 12 for [5, 3, 4]; 1 for a scalar or [n].
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

// Bytes of all elements. Throws Error{Shape} that names shape and dtype above kMaxSize, even if a
// size of 0 would hide that the others are too large.
std::size_t num_bytes_of(const Shape& shape, DType dtype);

}  // namespace lockstep
