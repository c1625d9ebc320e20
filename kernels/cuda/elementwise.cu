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

void CudaBackend::add(Stream& stream, ConstTensorView a, ConstTensorView b, TensorView y) {
  require_alike("add", a, {{"b", b}, {"y", y}});
  for_floating(a.dtype, "add", [&]<typename T>() {
    launch_elementwise(stream, "add", data_of<T>(y), y.num_elements, Add<T>{}, data_of<T>(a),
                       data_of<T>(b));
  });
}

void CudaBackend::multiply(Stream& stream, ConstTensorView a, ConstTensorView b, TensorView y) {
  require_alike("multiply", a, {{"b", b}, {"y", y}});
  for_floating(a.dtype, "multiply", [&]<typename T>() {
    launch_elementwise(stream, "multiply", data_of<T>(y), y.num_elements, Multiply<T>{},
                       data_of<T>(a), data_of<T>(b));
  });
}

void CudaBackend::scale(Stream& stream, ConstTensorView x, double factor, TensorView y) {
  require_alike("scale", x, {{"y", y}});
  for_floating(x.dtype, "scale", [&]<typename T>() {
    launch_elementwise(stream, "scale", data_of<T>(y), y.num_elements,
                       Scale<T>{static_cast<T>(factor)}, data_of<T>(x));
  });
}

void CudaBackend::axpy(Stream& stream, double factor, ConstTensorView x, TensorView y) {
  require_alike("axpy", x, {{"y", y}});
  for_floating(x.dtype, "axpy", [&]<typename T>() {
    launch_elementwise(stream, "axpy", data_of<T>(y), y.num_elements,
                       Axpy<T>{static_cast<T>(factor)}, data_of<T>(x), data_of<T>(y));
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

void CudaBackend::activation_forward(Stream& stream, Activation activation, ConstTensorView x,
                                     TensorView y) {
  for_floating(x.dtype, "activation", [&]<typename T>() {
    for_activation(activation, [&](auto function) {
      launch_elementwise(stream, "activation", data_of<T>(y), y.num_elements,
                         Forward<T, decltype(function)>{}, data_of<T>(x));
    });
  });
}

void CudaBackend::activation_backward(Stream& stream, Activation activation, ConstTensorView saved,
                                      ConstTensorView grad_y, TensorView grad_x) {
  const auto* name = "activation backward";
  for_floating(saved.dtype, name, [&]<typename T>() {
    for_activation(activation, [&](auto function) {
      launch_elementwise(stream, name, data_of<T>(grad_x), grad_x.num_elements,
                         Backward<T, decltype(function)>{}, data_of<T>(saved), data_of<T>(grad_y));
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

void CudaBackend::ordered_sum(Stream& stream, std::span<const ConstTensorView> sources,
                              double factor, TensorView y) {
  check_ordered_sum(sources, factor, y, kManySources);
  for_any(y.dtype, [&]<typename T>() {
    if constexpr (is_half<T>) {
      fail_dtype(DeviceType::cuda, "ordered_sum", y.dtype);
    } else if (y.num_elements == 0) {
      return;
    } else if (sources.size() <= kFewSources) {
      launch_ordered_sum<T, kFewSources>(stream, sources, static_cast<T>(factor), y);
    } else {
      launch_ordered_sum<T, kManySources>(stream, sources, static_cast<T>(factor), y);
    }
  });
}

}  // namespace lockstep::kernels::cuda
