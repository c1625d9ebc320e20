#include "kernels/cpu/activation.h"

#include "kernels/cpu/checks.h"
#include "kernels/cpu/eigen_backend.h"
#include "kernels/cpu/independent.h"
#include "kernels/cpu/parallel.h"

namespace lockstep::kernels {

void EigenBackend::activation_forward(Stream& stream, Activation activation, ConstTensorView x,
                                      TensorView y) {
  checks::activation_forward(x, y);
  for_floating(x.dtype, "activation", [&]<typename T>() {
    for_activation(activation, [&](auto f) {
      parallel_elements(stream, x.num_elements, [&](std::size_t begin, std::size_t end) {
        const T* in = data_of<T>(x);
        T* out = data_of<T>(y);
        LOCKSTEP_INDEPENDENT
        for (std::size_t i = begin; i < end; ++i) out[i] = f.forward(in[i]);
      });
    });
  });
}

void EigenBackend::activation_backward(Stream& stream, Activation activation, ConstTensorView saved,
                                       ConstTensorView grad_y, TensorView grad_x) {
  checks::activation_backward(saved, grad_y, grad_x);
  for_floating(saved.dtype, "activation backward", [&]<typename T>() {
    for_activation(activation, [&](auto f) {
      parallel_elements(stream, saved.num_elements, [&](std::size_t begin, std::size_t end) {
        const T* value = data_of<T>(saved);
        const T* in = data_of<T>(grad_y);
        T* out = data_of<T>(grad_x);
        LOCKSTEP_INDEPENDENT
        for (std::size_t i = begin; i < end; ++i) out[i] = f.backward(value[i], in[i]);
      });
    });
  });
}

}  // namespace lockstep::kernels
