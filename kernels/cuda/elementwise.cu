// Operations that treat all elements alike: sums, products, multiples, activations, and the ordered
// sum of our all-reduce. Each reads its inputs and writes its output once, in one launch.
#include <algorithm>

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/element_types.cuh"
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/launch.h"

namespace lockstep::kernels::cuda {
namespace {

template <typename T>
struct Add {
  __device__ T operator()(T a, T b) const { return a + b; }
};

template <typename T>
struct Multiply {
  __device__ T operator()(T a, T b) const { return a * b; }
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
  for_floating(call.a.dtype, "add", [&]<typename T>() {
    launch_elementwise(stream, "add", data_of<T>(call.y), call.y.num_elements, Add<T>{},
                       data_of<T>(call.a), data_of<T>(call.b));
  });
}

void CudaBackend::multiply(Stream& stream, const kernels::Multiply& call) {
  require_alike("multiply", call.a, {{"b", call.b}, {"y", call.y}});
  for_floating(call.a.dtype, "multiply", [&]<typename T>() {
    launch_elementwise(stream, "multiply", data_of<T>(call.y), call.y.num_elements, Multiply<T>{},
                       data_of<T>(call.a), data_of<T>(call.b));
  });
}

void CudaBackend::scale(Stream& stream, const kernels::Scale& call) {
  require_alike("scale", call.x, {{"y", call.y}});
  for_floating(call.x.dtype, "scale", [&]<typename T>() {
    launch_elementwise(stream, "scale", data_of<T>(call.y), call.y.num_elements,
                       Scale<T>{static_cast<T>(call.factor)}, data_of<T>(call.x));
  });
}

void CudaBackend::axpy(Stream& stream, const kernels::Axpy& call) {
  require_alike("axpy", call.x, {{"y", call.y}});
  for_floating(call.x.dtype, "axpy", [&]<typename T>() {
    launch_elementwise(stream, "axpy", data_of<T>(call.y), call.y.num_elements,
                       Axpy<T>{static_cast<T>(call.factor)}, data_of<T>(call.x),
                       data_of<T>(call.y));
  });
}

namespace {

template <typename T, typename Function>
struct Forward {
  __device__ T operator()(T x) const { return Function::forward(x); }
};

template <typename T, typename Function>
struct Backward {
  __device__ T operator()(T x, T grad) const { return Function::backward(x, grad); }
};

}  // namespace

void CudaBackend::activation_forward(Stream& stream, const ActivationForward& call) {
  for_floating(call.x.dtype, "activation", [&]<typename T>() {
    for_activation(call.activation, [&](auto function) {
      launch_elementwise(stream, "activation", data_of<T>(call.y), call.y.num_elements,
                         Forward<T, decltype(function)>{}, data_of<T>(call.x));
    });
  });
}

void CudaBackend::activation_backward(Stream& stream, const ActivationBackward& call) {
  const auto* name = "activation backward";
  for_floating(call.saved.dtype, name, [&]<typename T>() {
    for_activation(call.activation, [&](auto function) {
      launch_elementwise(stream, name, data_of<T>(call.grad_x), call.grad_x.num_elements,
                         Backward<T, decltype(function)>{}, data_of<T>(call.saved),
                         data_of<T>(call.grad_y));
    });
  });
}

// In an ordered sum, products and sums are rounded one by one, never fused, so that it has the
// CPU's bits.
namespace {

__device__ float rounded_product(float a, float b) {
  return __fmul_rn(a, b);
}
__device__ double rounded_product(double a, double b) {
  return __dmul_rn(a, b);
}
__device__ float rounded_sum(float a, float b) {
  return __fadd_rn(a, b);
}
__device__ double rounded_sum(double a, double b) {
  return __dadd_rn(a, b);
}
template <typename Integer>
__device__ Integer rounded_product(Integer a, Integer b) {
  return std::make_unsigned_t<Integer>(a) * std::make_unsigned_t<Integer>(b);
}
template <typename Integer>
__device__ Integer rounded_sum(Integer a, Integer b) {
  return std::make_unsigned_t<Integer>(a) + std::make_unsigned_t<Integer>(b);
}

constexpr int kFewSources = 8;
constexpr int kManySources = 480;  // their pointers fill the 4 KiB of a kernel's parameters

template <typename T, int kCapacity>
struct Sources {
  const T* at[kCapacity];
  int count;
};

template <typename T, int kCapacity>
__global__ void ordered_sum_kernel(Sources<T, kCapacity> sources, T* y, std::size_t num_elements,
                                   T factor) {
  for (std::size_t i = global_thread(); i < num_elements; i += num_global_threads()) {
    T sum = rounded_product(factor, sources.at[0][i]);
#pragma unroll 4
    for (int s = 1; s < sources.count; ++s) {
      sum = rounded_sum(sum, rounded_product(factor, sources.at[s][i]));
    }
    y[i] = sum;
  }
}

template <typename T, int kCapacity>
void launch_ordered_sum(Stream& stream, std::span<const ConstTensorView> views, T factor,
                        const TensorView& y) {
  Sources<T, kCapacity> sources;
  sources.count = static_cast<int>(views.size());
  for (std::size_t s = 0; s < views.size(); ++s) sources.at[s] = data_of<T>(views[s]);
  launch(stream, "ordered_sum", covering(y.num_elements, kThreads),
         ordered_sum_kernel<T, kCapacity>, sources, data_of<T>(y), y.num_elements, factor);
}

}  // namespace

void CudaBackend::ordered_sum(Stream& stream, const OrderedSum& call) {
  check_ordered_sum(call.sources, call.factor, call.y, kManySources);
  for_any(call.y.dtype, [&]<typename T>() {
    if constexpr (is_half<T>) {
      fail_dtype(DeviceType::cuda, "ordered_sum", call.y.dtype);
    } else if (call.y.num_elements == 0) {
      return;
    } else if (call.sources.size() <= kFewSources) {
      launch_ordered_sum<T, kFewSources>(stream, call.sources, static_cast<T>(call.factor), call.y);
    } else {
      launch_ordered_sum<T, kManySources>(stream, call.sources, static_cast<T>(call.factor),
                                          call.y);
    }
  });
}

}  // namespace lockstep::kernels::cuda
