// What the CUDA kernels check about their views before a launch, and how they choose the element
// type.
//
// A kernel that got past these reads and writes only inside its views. The .cu files include no
// formatter: what is thrown is put into words in checks.cpp.
#pragma once

#include <cstdint>

#include "engine/core/views.h"

namespace lockstep::kernels::cuda {

// Error{DType}: "the CUDA backend has no kernel for <dtype>".
[[noreturn]] void fail_dtype(const char* operation, DType dtype);
// Error{Shape} and Error{DType} with the given words.
[[noreturn]] void fail_shape(const char* operation, const char* message);
[[noreturn]] void fail_factor(const char* operation, DType dtype, double factor);
[[noreturn]] void fail_probability(const char* operation, double probability);

void require_floating(const char* operation, DType dtype);  // float32 or float64
void require_size(const char* operation, const char* name, std::size_t found, std::size_t expected);
void require_dtype(const char* operation, const char* name, DType found, DType expected);
// A vector of num_elements elements of dtype.
void require_vector(const char* operation, const char* name, const ConstTensorView& view,
                    DType dtype, std::size_t num_elements);
// As above, or no data at all.
void require_optional_vector(const char* operation, const char* name, const ConstTensorView& view,
                             DType dtype, std::size_t num_elements);
// One matrix of rows x cols.
void require_matrix(const char* operation, const char* name, const ConstMatrixView& view,
                    DType dtype, std::size_t rows, std::size_t cols);
// num_elements at offset inside a bucket of bucket_elements.
void require_inside(const char* operation, std::size_t num_elements, std::size_t offset,
                    std::size_t bucket_elements);

// Calls function.operator()<float>() or <double>().
template <typename Function>
void for_floating(DType dtype, const char* operation, Function&& function) {
  if (dtype == DType::float32) return function.template operator()<float>();
  if (dtype == DType::float64) return function.template operator()<double>();
  fail_dtype(operation, dtype);
}

// Calls function.operator()<Unit>() with the unsigned integer that is as wide as an element: for
// what only moves elements.
template <typename Function>
void for_width(DType dtype, Function&& function) {
  switch (size_of(dtype)) {
    case 1:
      return function.template operator()<std::uint8_t>();
    case 2:
      return function.template operator()<std::uint16_t>();
    case 4:
      return function.template operator()<std::uint32_t>();
    default:
      return function.template operator()<std::uint64_t>();
  }
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
T* data_of(const MatrixView& view) {
  return static_cast<T*>(view.data);
}
template <typename T>
const T* data_of(const ConstMatrixView& view) {
  return static_cast<const T*>(view.data);
}

}  // namespace lockstep::kernels::cuda
