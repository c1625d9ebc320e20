// Operations that treat all elements alike: sums, products, multiples, activations, and the ordered
// sum of our all-reduce. Each reads its inputs and writes its output once, in one launch.
#include <algorithm>

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/element_types.cuh"
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/launch.h"

namespace lockstep::kernels::cuda {
namespace {

struct Add {
  __device__ auto operator()(auto a, auto b) const { return a + b; }
};

struct Multiply {
  __device__ auto operator()(auto a, auto b) const { return a * b; }
};

template <typename T>
struct Scale {
  T factor;
  __device__ T operator()(T x) const { return factor * x; }
};

template <typename T>
struct Axpy {
  T factor;
  __device__ T operator()(T x, T y) const { return y + factor * x; }
};

}  // namespace

void CudaBackend::add(Stream& stream, const kernels::Add& call) {
  require_alike("add", call.a, {{"b", call.b}, {"y", call.y}});
  for_activations(call.a.dtype, "add", [&]<typename T>() {
    launch_elementwise(stream, "add", data_of<T>(call.y), call.y.num_elements, Add{},
                       data_of<T>(call.a), data_of<T>(call.b));
  });
}

void CudaBackend::multiply(Stream& stream, const kernels::Multiply& call) {
  require_alike("multiply", call.a, {{"b", call.b}, {"y", call.y}});
  for_activations(call.a.dtype, "multiply", [&]<typename T>() {
    launch_elementwise(stream, "multiply", data_of<T>(call.y), call.y.num_elements, Multiply{},
                       data_of<T>(call.a), data_of<T>(call.b));
  });
}

void CudaBackend::scale(Stream& stream, const kernels::Scale& call) {
  require_alike("scale", call.x, {{"y", call.y}});
  for_activations(call.x.dtype, "scale", [&]<typename T>() {
    launch_elementwise(stream, "scale", data_of<T>(call.y), call.y.num_elements,
                       Scale<ArithmeticOf<T>>{static_cast<ArithmeticOf<T>>(call.factor)},
                       data_of<T>(call.x));
  });
}

void CudaBackend::axpy(Stream& stream, const kernels::Axpy& call) {
  require_alike("axpy", call.x, {{"y", call.y}});
  for_activations(call.x.dtype, "axpy", [&]<typename T>() {
    launch_elementwise(stream, "axpy", data_of<T>(call.y), call.y.num_elements,
                       Axpy<ArithmeticOf<T>>{static_cast<ArithmeticOf<T>>(call.factor)},
                       data_of<T>(call.x), data_of<T>(call.y));
  });
}

namespace {

template <typename Function>
struct Forward {
  __device__ auto operator()(auto x) const { return Function::forward(x); }
};

template <typename Function>
struct Backward {
  __device__ auto operator()(auto x, auto grad) const { return Function::backward(x, grad); }
};

}  // namespace

void CudaBackend::activation_forward(Stream& stream, const ActivationForward& call) {
  for_activations(call.x.dtype, "activation", [&]<typename T>() {
    for_activation(call.activation, [&](auto function) {
      launch_elementwise(stream, "activation", data_of<T>(call.y), call.y.num_elements,
                         Forward<decltype(function)>{}, data_of<T>(call.x));
    });
  });
}

void CudaBackend::activation_backward(Stream& stream, const ActivationBackward& call) {
  const auto* name = "activation backward";
  for_activations(call.saved.dtype, name, [&]<typename T>() {
    for_activation(call.activation, [&](auto function) {
      launch_elementwise(stream, name, data_of<T>(call.grad_x), call.grad_x.num_elements,
                         Backward<decltype(function)>{}, data_of<T>(call.saved),
                         data_of<T>(call.grad_y));
    });
  });
}

}  // namespace lockstep::kernels::cuda
