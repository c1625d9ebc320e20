// Sums, products and multiples, element by element. Each moves its inputs and its output once.
#include "kernels/cuda/checks.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/elementwise.cuh"

namespace lockstep::kernels::cuda {
namespace {

template <typename T>
struct Add {
  __device__ T operator()(const T (&x)[2]) const { return x[0] + x[1]; }
};

template <typename T>
struct Multiply {
  __device__ T operator()(const T (&x)[2]) const { return x[0] * x[1]; }
};

template <typename T>
struct Scale {
  T factor;
  __device__ T operator()(const T (&x)[1]) const { return factor * x[0]; }
};

template <typename T>
struct Axpy {
  T factor;
  __device__ T operator()(const T (&x)[2]) const { return x[1] + factor * x[0]; }
};

}  // namespace

void CudaBackend::add(Stream& stream, ConstTensorView a, ConstTensorView b, TensorView y) {
  checks::add(a, b, y);
  for_floating(a.dtype, "add", [&]<typename T>() {
    launch_elementwise(stream, "add", Inputs<T, 2>{{data_of<T>(a), data_of<T>(b)}}, data_of<T>(y),
                       y.num_elements, Add<T>{});
  });
}

void CudaBackend::multiply(Stream& stream, ConstTensorView a, ConstTensorView b, TensorView y) {
  checks::multiply(a, b, y);
  for_floating(a.dtype, "multiply", [&]<typename T>() {
    launch_elementwise(stream, "multiply", Inputs<T, 2>{{data_of<T>(a), data_of<T>(b)}},
                       data_of<T>(y), y.num_elements, Multiply<T>{});
  });
}

void CudaBackend::scale(Stream& stream, ConstTensorView x, double factor, TensorView y) {
  checks::scale(x, y);
  for_floating(x.dtype, "scale", [&]<typename T>() {
    launch_elementwise(stream, "scale", Inputs<T, 1>{{data_of<T>(x)}}, data_of<T>(y),
                       y.num_elements, Scale<T>{static_cast<T>(factor)});
  });
}

void CudaBackend::axpy(Stream& stream, double factor, ConstTensorView x, TensorView y) {
  checks::axpy(x, y);
  for_floating(x.dtype, "axpy", [&]<typename T>() {
    launch_elementwise(stream, "axpy", Inputs<T, 2>{{data_of<T>(x), data_of<T>(y)}}, data_of<T>(y),
                       y.num_elements, Axpy<T>{static_cast<T>(factor)});
  });
}

}  // namespace lockstep::kernels::cuda
