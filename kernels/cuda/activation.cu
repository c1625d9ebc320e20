// Activations outside a matrix product: forward moves 2 elements per element, backward 3.
#include "kernels/cuda/activation.cuh"

#include "kernels/cuda/checks.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/elementwise.cuh"

namespace lockstep::kernels::cuda {
namespace {

template <typename T, typename Function>
struct Forward {
  __device__ T operator()(const T (&x)[1]) const { return Function::forward(x[0]); }
};

template <typename T, typename Function>
struct Backward {
  __device__ T operator()(const T (&x)[2]) const { return Function::backward(x[0], x[1]); }
};

}  // namespace

void CudaBackend::activation_forward(Stream& stream, Activation activation, ConstTensorView x,
                                     TensorView y) {
  checks::activation_forward(x, y);
  for_floating(x.dtype, "activation", [&]<typename T>() {
    for_activation(activation, [&](auto function) {
      launch_elementwise(stream, "activation", Inputs<T, 1>{{data_of<T>(x)}}, data_of<T>(y),
                         y.num_elements, Forward<T, decltype(function)>{});
    });
  });
}

void CudaBackend::activation_backward(Stream& stream, Activation activation, ConstTensorView saved,
                                      ConstTensorView grad_y, TensorView grad_x) {
  const auto* name = "activation backward";
  checks::activation_backward(saved, grad_y, grad_x);
  for_floating(saved.dtype, name, [&]<typename T>() {
    for_activation(activation, [&](auto function) {
      launch_elementwise(stream, name, Inputs<T, 2>{{data_of<T>(saved), data_of<T>(grad_y)}},
                         data_of<T>(grad_x), grad_x.num_elements,
                         Backward<T, decltype(function)>{});
    });
  });
}

}  // namespace lockstep::kernels::cuda
