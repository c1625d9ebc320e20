// What the CUDA backend adds to the checks that all backends share (kernels/checks.h): which
// element types its kernels take, and how they are chosen. The .cu files include no formatter.
#pragma once

#include <cstdint>

#include "kernels/checks.h"
#include "kernels/elements.h"

namespace lockstep::kernels::cuda {

// Error{DType}: "the CUDA backend has no kernel for <dtype>".
[[noreturn]] inline void fail_dtype(const char* operation, DType dtype) {
  checks::fail_dtype(DeviceType::cuda, operation, dtype);
}

// Error{Shape}: more sources of an ordered sum than one launch takes.
[[noreturn]] void fail_sources(std::size_t found, std::size_t most);

inline void require_floating(const char* operation, DType dtype) {  // float32 or float64
  if (dtype != DType::float32 && dtype != DType::float64) fail_dtype(operation, dtype);
}

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

}  // namespace lockstep::kernels::cuda
