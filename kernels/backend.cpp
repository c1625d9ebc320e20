#include "kernels/backend.h"

#include <atomic>

#include "engine/core/error.h"
#include "kernels/cpu/eigen_backend.h"
#include "kernels/cuda_backend.h"

namespace lockstep::kernels {

bool needs_preactivation(Activation activation) {
  return activation == Activation::gelu_erf || activation == Activation::gelu_tanh;
}

namespace {

std::atomic<Backend*> instead_of_cpu{nullptr};
std::atomic<Backend*> instead_of_cuda{nullptr};

std::atomic<Backend*>& instead_of(DeviceType type) {
  return type == DeviceType::cpu ? instead_of_cpu : instead_of_cuda;
}

}  // namespace

void set_backend(DeviceType type, Backend* backend) {
  instead_of(type).store(backend, std::memory_order_release);
}

Backend& backend(DeviceType type) {
  if (Backend* installed = instead_of(type).load(std::memory_order_acquire)) [[unlikely]] {
    return *installed;
  }
  // Never destroyed: tensors in static variables may be used until the very end.
  static EigenBackend& cpu = *new EigenBackend;
  if (type == DeviceType::cpu) return cpu;
  static Backend* const cuda = cuda_backend();
  require(cuda != nullptr, ErrorCode::Device, "backend",
          "this build has no CUDA; use the device cpu, or build the cuda preset");
  return *cuda;
}

}  // namespace lockstep::kernels
