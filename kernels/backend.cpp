#include "kernels/backend.h"

#include "engine/act/machine.h"
#include "engine/core/error.h"
#include "kernels/checks.h"
#include "kernels/cpu/eigen_backend.h"
#include "kernels/cuda_backend.h"
#include "kernels/paced/paced_backend.h"

namespace lockstep::kernels {

bool needs_preactivation(Activation activation) {
  return activation == Activation::gelu_erf || activation == Activation::gelu_tanh;
}

LinearForward LinearCrossEntropy::forward() const {
  LinearForward call;
  call.x = x;
  call.weight = weight;
  call.bias = bias;
  call.y = probabilities;
  return call;
}

LinearBackward LinearCrossEntropy::backward() const {
  LinearBackward call;
  call.x = x;
  call.weight = weight;
  call.grad_y = gradient.grad_logits;
  call.grad_x = grad_x;
  call.input_activation = input_activation;
  call.input_preactivation = input_preactivation;
  return call;
}

void Backend::linear_cross_entropy(Stream& stream, const LinearCrossEntropy& call) {
  checks::linear_cross_entropy(call);
  linear_forward(stream, call.forward());
  softmax_cross_entropy_forward(stream, call.probabilities, call.labels, call.reduction,
                                call.probabilities, call.loss, call.gradient);
  if (call.grad_x.data != nullptr) linear_backward(stream, call.backward());
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
