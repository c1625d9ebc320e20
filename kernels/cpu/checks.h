// What the CPU kernels check about their views, and how they choose the element type.
//
// A kernel that got past these reads and writes only inside its views.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>

#include "engine/core/error.h"
#include "engine/core/half.h"
#include "engine/core/views.h"

namespace lockstep::kernels {

[[noreturn]] inline void fail_dtype(std::string_view operation, DType dtype) {
  fail(ErrorCode::DType, operation, "the CPU backend has no kernel for {}; convert to {}",
       to_string(dtype), "float32 or float64");
}

// Calls function.operator()<float>() or <double>().
template <typename Function>
void for_floating(DType dtype, std::string_view operation, Function&& function) {
  if (dtype == DType::float32) return function.template operator()<float>();
  if (dtype == DType::float64) return function.template operator()<double>();
  fail_dtype(operation, dtype);
}

// Also the integers.
template <typename Function>
void for_number(DType dtype, std::string_view operation, Function&& function) {
  switch (dtype) {
    case DType::float32:
      return function.template operator()<float>();
    case DType::float64:
      return function.template operator()<double>();
    case DType::int64:
      return function.template operator()<std::int64_t>();
    case DType::int32:
      return function.template operator()<std::int32_t>();
    case DType::uint8:
      return function.template operator()<std::uint8_t>();
    default:
      fail_dtype(operation, dtype);
  }
}

// Also the 16-bit types, which convert to and from float (core/half.h): every dtype.
template <typename Function>
void for_any(DType dtype, std::string_view operation, Function&& function) {
  if (dtype == DType::bfloat16) return function.template operator()<Bfloat16>();
  if (dtype == DType::float16) return function.template operator()<Float16>();
  for_number(dtype, operation, std::forward<Function>(function));
}

inline void require_size(std::string_view operation, std::string_view name, std::size_t found,
                         std::size_t expected) {
  require(found == expected, ErrorCode::Shape, operation, "{} has size {}, expected {}", name,
          found, expected);
}

inline void require_dtype(std::string_view operation, std::string_view name, DType found,
                          DType expected) {
  require(found == expected, ErrorCode::DType, operation, "{} is {}, expected {}", name,
          to_string(found), to_string(expected));
}

// A vector of num_elements elements of dtype.
inline void require_vector(std::string_view operation, std::string_view name,
                           const ConstTensorView& view, DType dtype, std::size_t num_elements) {
  require_dtype(operation, name, view.dtype, dtype);
  require_size(operation, name, view.num_elements, num_elements);
}

// As above, or no data at all.
inline void require_optional_vector(std::string_view operation, std::string_view name,
                                    const ConstTensorView& view, DType dtype,
                                    std::size_t num_elements) {
  if (view.data) require_vector(operation, name, view, dtype, num_elements);
}

// One matrix of rows x cols.
inline void require_matrix(std::string_view operation, std::string_view name,
                           const ConstMatrixView& view, DType dtype, std::size_t rows,
                           std::size_t cols) {
  require_dtype(operation, name, view.dtype, dtype);
  require(view.batch == 1 && view.rows == rows && view.cols == cols, ErrorCode::Shape, operation,
          "{} is {} matrix of [{}, {}], expected one of [{}, {}]", name, view.batch, view.rows,
          view.cols, rows, cols);
}

template <typename T>
T* data_of(const TensorView& view) {
  return static_cast<T*>(view.data);
}
template <typename T>
const T* data_of(const ConstTensorView& view) {
  return static_cast<const T*>(view.data);
}
template <typename T>
T* row_of(const MatrixView& view, std::size_t row) {
  return static_cast<T*>(view.data) + row * view.leading_dimension;
}
template <typename T>
const T* row_of(const ConstMatrixView& view, std::size_t row) {
  return static_cast<const T*>(view.data) + row * view.leading_dimension;
}

}  // namespace lockstep::kernels
