// One kernel reads an element from every rank, combines the values in the order of ranks, and
// writes the result to every rank.
#include <algorithm>

#include "engine/comm/transport/cuda_peer/arithmetic.cuh"
#include "engine/comm/transport/cuda_peer/cuda_peer.h"
#include "kernels/cuda/launch.h"

namespace lockstep::comm::cuda_peer {
namespace {

struct Pointers {
  const void* sources[kMaxRanks];
  void* outputs[kMaxRanks];
  int num_sources;
  int num_outputs;
};

// Elements begin ... end - 1, kElements at a time by each thread.
template <std::size_t kElements, typename T, typename Op>
__device__ void reduce_range(const Pointers& pointers, std::size_t begin, std::size_t end,
                             Arithmetic<T> factor, Op op) {
  const std::size_t stride = on_gpu::num_global_threads() * kElements;
  for (std::size_t i = begin + on_gpu::global_thread() * kElements; i < end; i += stride) {
    Arithmetic<T> total[kElements] = {};
#pragma unroll 4
    for (int source = 0; source < pointers.num_sources; ++source) {
      const auto values =
          on_gpu::load_vector<kElements>(static_cast<const T*>(pointers.sources[source]) + i);
      combine<T>(total, values, source == 0 ? Place::first : Place::later, factor, op);
    }
    const auto result = rounded<T>(total);
    for (int output = 0; output < pointers.num_outputs; ++output) {
      on_gpu::store_vector(static_cast<T*>(pointers.outputs[output]) + i, result);
    }
  }
}

// The first in_vectors elements in pieces of 16 bytes, the others one by one.
template <typename T, typename Op>
__global__ void reduce_to_all_kernel(const __grid_constant__ Pointers pointers,
                                     std::size_t in_vectors, std::size_t num_elements,
                                     Arithmetic<T> factor, Op op) {
  reduce_range<on_gpu::kWidth<T>, T>(pointers, 0, in_vectors, factor, op);
  reduce_range<1, T>(pointers, in_vectors, num_elements, factor, op);
}

template <typename T>
std::size_t vector_elements(const Pointers& pointers, std::size_t num_elements) {
  for (int i = 0; i < pointers.num_sources; ++i) {
    if (!on_gpu::is_aligned(pointers.sources[i])) return 0;
  }
  for (int i = 0; i < pointers.num_outputs; ++i) {
    if (!on_gpu::is_aligned(pointers.outputs[i])) return 0;
  }
  return num_elements / on_gpu::kWidth<T> * on_gpu::kWidth<T>;
}

template <typename T, typename Op>
void launch_op(runtime::Stream& stream, const char* operation, const Pointers& pointers,
               std::size_t num_elements, double factor, Op op) {
  const std::size_t in_vectors = vector_elements<T>(pointers, num_elements);
  // Many elements are worth several rounds of a thread, so that blocks need not be started.
  constexpr unsigned kMaxBlocks = 1024;
  const std::size_t per_thread = in_vectors > 0 ? on_gpu::kWidth<T> : 1;
  on_gpu::launch(
      stream, operation,
      on_gpu::covering((num_elements + per_thread - 1) / per_thread, on_gpu::kThreads, kMaxBlocks),
      reduce_to_all_kernel<T, Op>, pointers, in_vectors, num_elements,
      static_cast<Arithmetic<T>>(factor), op);
}

}  // namespace

void reduce_to_all(runtime::Stream& stream, ReduceOp op, double factor,
                   std::span<const ConstTensorView> sources, std::span<const TensorView> outputs) {
  const DType dtype = outputs[0].dtype;
  const std::size_t num_elements = outputs[0].num_elements;
  if (num_elements == 0) return;
  Pointers pointers{};
  pointers.num_sources = static_cast<int>(sources.size());
  pointers.num_outputs = static_cast<int>(outputs.size());
  std::ranges::transform(sources, pointers.sources, &ConstTensorView::data);
  std::ranges::transform(outputs, pointers.outputs, &TensorView::data);
  for_reduction("reduce", dtype, op, [&]<typename T>(auto functor) {
    launch_op<T>(stream, "reduce", pointers, num_elements, factor, functor);
  });
}

}  // namespace lockstep::comm::cuda_peer
