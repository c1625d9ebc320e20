// What the CPU backend adds to the checks that all backends share (kernels/checks.h): which element
// types its kernels take, and how they are chosen.
#pragma once

#include "engine/core/half.h"
#include "kernels/checks.h"
#include "kernels/elements.h"

namespace lockstep::kernels {

// float32 or float64, for a method that would find out only after it has changed something.
inline void require_floating(const char* operation, DType dtype) {
  if (dtype != DType::float32 && dtype != DType::float64) {
    checks::fail_dtype(DeviceType::cpu, operation, dtype);
  }
}

// Calls function.operator()<float>() or <double>().
template <typename Function>
void for_floating(DType dtype, const char* operation, Function&& function) {
  if (dtype == DType::float32) return function.template operator()<float>();
  if (dtype == DType::float64) return function.template operator()<double>();
  checks::fail_dtype(DeviceType::cpu, operation, dtype);
}

// Every dtype; the 16-bit ones convert to and from float (core/half.h).
template <typename Function>
void for_any(DType dtype, Function&& function) {
  for_any_of<Bfloat16, Float16>(dtype, function);
}

}  // namespace lockstep::kernels
