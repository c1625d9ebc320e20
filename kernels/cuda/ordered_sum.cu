// The sum of several buffers, the arithmetic of our all-reduce: every source is read once and the
// sum written once, in one launch.
//
// Products and sums are rounded one by one, never fused, so that the sum has the CPU's bits.
#include <algorithm>

#include "kernels/cuda/checks.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/half.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/vector.cuh"

namespace lockstep::kernels::cuda {
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
  return a * b;
}
template <typename Integer>
__device__ Integer rounded_sum(Integer a, Integer b) {
  return a + b;
}

constexpr int kFewSources = 8;
constexpr int kManySources = 480;  // their pointers fill the 4 KiB of a kernel's parameters

template <typename T, int kCapacity>
struct Sources {
  const T* at[kCapacity];
  int count;
};

// The sums of kElements elements from position i on. Few sources are all loaded before the first
// addition, many in fours.
template <std::size_t kElements, typename T>
__device__ Vector<T, kElements> sum_at(const Sources<T, kFewSources>& sources, std::size_t i,
                                       T factor) {
  Vector<T, kElements> in[kFewSources];
#pragma unroll
  for (int s = 0; s < kFewSources; ++s) {
    if (s < sources.count) in[s] = load_vector<kElements>(sources.at[s] + i);
  }
  Vector<T, kElements> sum;
#pragma unroll
  for (std::size_t k = 0; k < kElements; ++k) {
    sum.at[k] = rounded_product(factor, in[0].at[k]);
#pragma unroll
    for (int s = 1; s < kFewSources; ++s) {
      if (s >= sources.count) break;
      sum.at[k] = rounded_sum(sum.at[k], rounded_product(factor, in[s].at[k]));
    }
  }
  return sum;
}

template <std::size_t kElements, typename T>
__device__ Vector<T, kElements> sum_at(const Sources<T, kManySources>& sources, std::size_t i,
                                       T factor) {
  Vector<T, kElements> sum = load_vector<kElements>(sources.at[0] + i);
  for (T& value : sum.at) value = rounded_product(factor, value);
#pragma unroll 4
  for (int s = 1; s < sources.count; ++s) {
    const auto in = load_vector<kElements>(sources.at[s] + i);
#pragma unroll
    for (std::size_t k = 0; k < kElements; ++k) {
      sum.at[k] = rounded_sum(sum.at[k], rounded_product(factor, in.at[k]));
    }
  }
  return sum;
}

template <typename T, int kCapacity>
__global__ void ordered_sum_kernel(Sources<T, kCapacity> sources, T* y, std::size_t num_elements,
                                   std::size_t in_vectors, T factor) {
  const std::size_t step = num_global_threads();
  for (std::size_t i = global_thread() * kWidth<T>; i < in_vectors; i += step * kWidth<T>) {
    store_vector(y + i, sum_at<kWidth<T>>(sources, i, factor));
  }
  for (std::size_t i = in_vectors + global_thread(); i < num_elements; i += step) {
    store_vector(y + i, sum_at<1>(sources, i, factor));
  }
}

template <typename T, int kCapacity>
void launch_ordered_sum(Stream& stream, std::span<const ConstTensorView> views, T factor,
                        const TensorView& y) {
  Sources<T, kCapacity> sources;
  sources.count = static_cast<int>(views.size());
  bool aligned = is_aligned(y.data);
  for (std::size_t s = 0; s < views.size(); ++s) {
    sources.at[s] = data_of<T>(views[s]);
    aligned = aligned && is_aligned(views[s].data);
  }
  const std::size_t in_vectors = aligned ? y.num_elements / kWidth<T> * kWidth<T> : 0;
  const std::size_t wanted = std::max(in_vectors / kWidth<T>, y.num_elements - in_vectors);
  launch(stream, "ordered_sum", covering(wanted, kThreads), ordered_sum_kernel<T, kCapacity>,
         sources, data_of<T>(y), y.num_elements, in_vectors, factor);
}

}  // namespace

void CudaBackend::ordered_sum(Stream& stream, std::span<const ConstTensorView> sources,
                              double factor, TensorView y) {
  checks::ordered_sum(sources, factor, y);
  if (sources.size() > kManySources) fail_sources(sources.size(), kManySources);
  for_any(y.dtype, [&]<typename T>() {
    if constexpr (kIsHalf<T>) {
      fail_dtype("ordered_sum", y.dtype);
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
