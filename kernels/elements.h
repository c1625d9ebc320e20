// Views as pointers to their elements, and dtypes as the C++ types of elements.
#pragma once

#include <cstdint>

#include "engine/core/views.h"

namespace lockstep::kernels {

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

template <typename T>
T* row_of(const MatrixView& view, std::size_t row) {
  return data_of<T>(view) + row * view.leading_dimension;
}
template <typename T>
const T* row_of(const ConstMatrixView& view, std::size_t row) {
  return data_of<T>(view) + row * view.leading_dimension;
}

// Calls function.operator()<T>() with the type of an element, any of them. The 16-bit types are the
// backend's own.
template <typename Bfloat16, typename Float16, typename Function>
void for_any_of(DType dtype, Function&& function) {
  switch (dtype) {
    case DType::float64:
      return function.template operator()<double>();
    case DType::float32:
      return function.template operator()<float>();
    case DType::bfloat16:
      return function.template operator()<Bfloat16>();
    case DType::float16:
      return function.template operator()<Float16>();
    case DType::int64:
      return function.template operator()<std::int64_t>();
    case DType::int32:
      return function.template operator()<std::int32_t>();
    case DType::uint8:
      return function.template operator()<std::uint8_t>();
  }
}

}  // namespace lockstep::kernels
