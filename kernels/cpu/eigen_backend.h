// The CPU backend: float32 and float64, the reference that other backends are tested against.
//
// Matrix products use Eigen's vector instructions and are cut over the device's threads (gemm.h);
// the rest is plain loops that the compiler vectorises. kernels/backend.h says what each method
// does; there is one source file per family. Results never depend on the number of threads or on
// addresses, only on shapes and values.
#pragma once

#include "kernels/calls.h"
#include "kernels/element_traits.h"

namespace lockstep::kernels {

// Calls function.operator()<float>() or <double>(); throws Error{DType} for another dtype.
template <typename Function>
void for_floating(DType dtype, const char* operation, Function&& function) {
  for_floating_of<DeviceType::cpu>(dtype, operation, function);
}

class EigenBackend final : public Backend {
 public:
  LOCKSTEP_KERNELS(LOCKSTEP_OVERRIDE)
  std::size_t conv_scratch(const Windows& windows) const override;
};

// It, with bfloat16 activations (cpu_backend.cpp). Never destroyed.
Backend& cpu_backend();

}  // namespace lockstep::kernels
