#include "kernels/backend.h"

#include "engine/act/machine.h"
#include "engine/core/error.h"
#include "kernels/cpu/eigen_backend.h"
#include "kernels/cuda_backend.h"
#include "kernels/paced/paced_backend.h"

namespace lockstep::kernels {

bool needs_preactivation(Activation activation) {
  return activation == Activation::gelu_erf || activation == Activation::gelu_tanh;
}

Backend& backend(DeviceType type) {
  // Never destroyed: tensors in static variables may be used until the very end.
  static EigenBackend& cpu = *new EigenBackend;
  if (type == DeviceType::cpu) {
    if (act::machine() == nullptr) [[likely]] {
      return cpu;
    }
    static PacedBackend& paced = *new PacedBackend(cpu);
    return paced;
  }
  static Backend* const cuda = cuda_backend();
  require(cuda != nullptr, ErrorCode::Device, "backend",
          "this build has no CUDA; use the device cpu, or build the cuda preset");
  return *cuda;
}

}  // namespace lockstep::kernels
