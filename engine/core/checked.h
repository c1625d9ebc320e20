// Arithmetic on sizes that never wraps around, and narrowing that never loses a bit: what does not
// fit is an error where it arises. Shapes, bytes and offsets are computed with these.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "engine/core/error.h"

namespace lockstep {

// The largest number of elements or bytes: differences of sizes fit into std::ptrdiff_t, as kernels
// need.
inline constexpr std::size_t kMaxSize = PTRDIFF_MAX;

// Writes a * b and returns true, or returns false where that is above kMaxSize.
constexpr bool multiply_fits(std::size_t a, std::size_t b, std::size_t& product) {
  return !__builtin_mul_overflow(a, b, &product) && product <= kMaxSize;
}

// unit times all sizes but those of 0, so that a 0 does not hide that the others are too large;
// nothing above kMaxSize.
std::optional<std::size_t> product_of_nonzero(std::span<const std::size_t> sizes,
                                              std::size_t unit = 1);

// a * b and a + b. `operation` is that of the error. Throw Error{Shape} above kMaxSize.
std::size_t checked_product(std::string_view operation, std::size_t a, std::size_t b);
std::size_t checked_sum(std::string_view operation, std::size_t a, std::size_t b);

// The same value in another integer type; `what` it counts is named in the error.
// Throws Error{Shape} where the type has no such value.
template <std::integral To, std::integral From>
To checked_narrow(std::string_view operation, std::string_view what, From value) {
  require(std::in_range<To>(value), ErrorCode::Shape, operation,
          "{} must fit into {} bits, found {}", what, 8 * sizeof(To), value);
  return static_cast<To>(value);
}

}  // namespace lockstep
