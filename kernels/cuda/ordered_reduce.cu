// One kernel reads each element once from every source, and writes the result once to every output,
// whose memory may be other GPUs'.
#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/element_types.cuh"
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/launch.h"

namespace lockstep::kernels::cuda {
namespace {

// Products and sums are rounded one after the other, as on the CPU; a fused multiply-add would give
// other bits. Integers wrap around.
template <typename T>
__device__ T multiply(T a, T b) {
  if constexpr (std::is_same_v<T, float>) {
    return __fmul_rn(a, b);
  } else if constexpr (std::is_same_v<T, double>) {
    return __dmul_rn(a, b);
  } else {
    using Unsigned = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<Unsigned>(a) * static_cast<Unsigned>(b));
  }
}
template <typename T>
__device__ T add(T a, T b) {
  if constexpr (std::is_same_v<T, float>) {
    return __fadd_rn(a, b);
  } else if constexpr (std::is_same_v<T, double>) {
    return __dadd_rn(a, b);
  } else {
    using Unsigned = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<Unsigned>(a) + static_cast<Unsigned>(b));
  }
}

// min and max keep a NaN.
template <typename T>
__device__ T combine(ReduceOp op, T a, T b) {
  switch (op) {
    case ReduceOp::product:
      return multiply(a, b);
    case ReduceOp::min:
      return b < a || b != b ? b : a;
    case ReduceOp::max:
      return b > a || b != b ? b : a;
    default:
      return add(a, b);
  }
}

struct Pointers {
  const void* sources[kMostReduced];
  void* outputs[kMostReduced];
  int num_sources;
  int num_outputs;
};

// Elements begin ... end - 1, kElements at a time by each thread.
template <std::size_t kElements, typename T>
__device__ void reduce_range(const Pointers& pointers, std::size_t begin, std::size_t end,
                             ArithmeticOf<T> factor, ReduceOp op) {
  const std::size_t stride = num_global_threads() * kElements;
  for (std::size_t i = begin + global_thread() * kElements; i < end; i += stride) {
    ArithmeticOf<T> total[kElements] = {};
#pragma unroll 4
    for (int source = 0; source < pointers.num_sources; ++source) {
      const auto values =
          load_vector<kElements>(static_cast<const T*>(pointers.sources[source]) + i);
#pragma unroll
      for (std::size_t k = 0; k < kElements; ++k) {
        const auto value = multiply(factor, element_cast<ArithmeticOf<T>>(values.at[k]));
        total[k] = source == 0 ? value : combine(op, total[k], value);
      }
    }
    Vector<T, kElements> result;
#pragma unroll
    for (std::size_t k = 0; k < kElements; ++k) result.at[k] = element_cast<T>(total[k]);
    for (int output = 0; output < pointers.num_outputs; ++output) {
      store_vector(static_cast<T*>(pointers.outputs[output]) + i, result);
    }
  }
}

// The first in_vectors elements in pieces of 16 bytes, the others one by one.
template <typename T>
__global__ void reduce_kernel(const __grid_constant__ Pointers pointers, std::size_t in_vectors,
                              std::size_t num_elements, ArithmeticOf<T> factor, ReduceOp op) {
  reduce_range<kWidth<T>, T>(pointers, 0, in_vectors, factor, op);
  reduce_range<1, T>(pointers, in_vectors, num_elements, factor, op);
}

template <typename T>
std::size_t vector_elements(const Pointers& pointers, std::size_t num_elements) {
  for (int i = 0; i < pointers.num_sources; ++i) {
    if (!is_aligned(pointers.sources[i])) return 0;
  }
  for (int i = 0; i < pointers.num_outputs; ++i) {
    if (!is_aligned(pointers.outputs[i])) return 0;
  }
  return num_elements / kWidth<T> * kWidth<T>;
}

template <typename T>
void launch_reduce(Stream& stream, const OrderedReduce& call) {
  Pointers pointers{};
  pointers.num_sources = static_cast<int>(call.sources.size());
  pointers.num_outputs = static_cast<int>(1 + call.copies.size());
  std::ranges::transform(call.sources, pointers.sources, &ConstTensorView::data);
  pointers.outputs[0] = call.y.data;
  std::ranges::transform(call.copies, pointers.outputs + 1, &TensorView::data);
  const std::size_t num_elements = call.y.num_elements;
  const std::size_t in_vectors = vector_elements<T>(pointers, num_elements);
  // With many elements a thread does several rounds, which saves starting blocks; but all threads
  // together must request as much as can be under way at once, bandwidth * latency: NVLink 4 brings
  // 450 GB/s after about 2 us.
  constexpr unsigned kMaxBlocks = 1024;
  constexpr std::size_t kBytesOnTheirWay = 900'000;
  static_assert(kMaxBlocks * kThreads * std::size_t{16} >= kBytesOnTheirWay);
  const std::size_t per_thread = in_vectors > 0 ? kWidth<T> : 1;
  launch(stream, "reduce",
         covering((num_elements + per_thread - 1) / per_thread, kThreads, kMaxBlocks),
         reduce_kernel<T>, pointers, in_vectors, num_elements,
         static_cast<ArithmeticOf<T>>(call.factor), call.op);
}

}  // namespace

void CudaBackend::ordered_reduce(Stream& stream, const OrderedReduce& call) {
  check_ordered_reduce(call, kMostReduced);
  if (call.y.num_elements == 0) return;
  for_any(call.y.dtype, [&]<typename T>() {
    if constexpr (std::is_same_v<T, std::uint8_t>) {
      fail_dtype(DeviceType::cuda, "ordered_reduce", call.y.dtype);
    } else {
      launch_reduce<T>(stream, call);
    }
  });
}

}  // namespace lockstep::kernels::cuda
