// The sizes of a tensor, outermost first; row-major. At most Shape::kMaxDims of them, kept inline
// so that making a tensor allocates nothing for its shape.
#pragma once

#include <array>
#include <cstddef>
#include <initializer_list>
#include <span>
#include <string>

namespace lockstep {

class Shape {
 public:
  static constexpr std::size_t kMaxDims = 6;

  Shape() = default;  // a scalar: no dimensions, one element
  Shape(std::initializer_list<std::size_t> sizes);
  // Throws Error{Shape} for more than kMaxDims sizes.
  explicit Shape(std::span<const std::size_t> sizes);

  std::size_t num_dims() const { return num_dims_; }
  std::size_t operator[](std::size_t dim) const { return sizes_[dim]; }
  std::size_t num_elements() const;

  // Elements of one index along dim 0: 12 for [5, 3, 4]; 1 for a scalar or [n].
  std::size_t row_elements() const;

  // The same shape with another size along dim. REQUIRES: dim < num_dims().
  Shape with(std::size_t dim, std::size_t size) const;

  std::span<const std::size_t> sizes() const { return {sizes_.data(), num_dims_}; }

  bool operator==(const Shape& other) const;

 private:
  std::array<std::size_t, kMaxDims> sizes_{};
  std::size_t num_dims_ = 0;
};

// "[30, 5]"; "[]" for a scalar.
std::string to_string(const Shape& shape);

}  // namespace lockstep
