// Views as pointers to their elements, dtypes as the C++ types of elements, and the errors for
// views that don't fit. It includes no formatter, so that .cu files can use it.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <type_traits>

#include "engine/core/device.h"
#include "engine/core/views.h"

namespace lockstep::kernels {

struct OrderedReduce;

// The elements of a tensor or matrix view, const where the view's data is.
template <typename T, template <typename> typename View, typename Void>
auto* data_of(const View<Void>& view) {
  return static_cast<std::conditional_t<std::is_const_v<Void>, const T, T>*>(view.data);
}

template <typename T, typename Void>
auto* row_of(const BasicMatrixView<Void>& view, std::size_t row) {
  return data_of<T>(view) + row * view.leading_dimension;
}

// Calls function.operator()<T>() with the element type of any dtype. The 16-bit types are the
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

// Throws Error{DType}: "the CPU backend has no kernel for int64; convert to float32 or float64".
[[noreturn]] void fail_dtype(DeviceType device, const char* operation, DType dtype);

struct NamedView {
  const char* name;
  ConstTensorView view;
};
// Throws Error{Shape} that names the view, unless it has as many elements as the first.
void require_as_large(const char* operation, const ConstTensorView& first, const NamedView& other);
// The same for several views, which must also have its dtype; else throws Error{DType}.
void require_alike(const char* operation, const ConstTensorView& first,
                   std::initializer_list<NamedView> others);
// Checks the arguments of Backend::ordered_reduce.
void check_ordered_reduce(const OrderedReduce& call, std::size_t most_sources = SIZE_MAX);

// Calls function.operator()<float>() or <double>().
template <DeviceType kDevice, typename Function>
void for_floating_of(DType dtype, const char* operation, Function&& function) {
  if (dtype == DType::float32) return function.template operator()<float>();
  if (dtype == DType::float64) return function.template operator()<double>();
  fail_dtype(kDevice, operation, dtype);
}

// Requires float32 or float64, for a method that would otherwise fail after it has changed
// something.
template <DeviceType kDevice>
void require_floating_of(const char* operation, DType dtype) {
  for_floating_of<kDevice>(dtype, operation, []<typename T>() {});
}

}  // namespace lockstep::kernels
