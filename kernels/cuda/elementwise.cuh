// y[i] = op(x0[i], x1[i], ...): the kernel behind every operation that treats elements alike.
//
// An operation is a functor `T operator()(const T (&x)[kInputs]) const` for the device. One with a
// member load() reads there, once per thread, what stands in device memory.
#pragma once

#include <algorithm>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/vector.cuh"

namespace lockstep::kernels::cuda {

template <typename T, int kInputs>
struct Inputs {
  const T* at[kInputs];
};

// How neighbouring elements are loaded: by one instruction, or one by one.
enum class Access { vector, single };

template <std::size_t kElements, typename T, int kInputs>
struct InputVectors {
  Vector<T, kElements> of[kInputs];

  template <Access kAccess>
  __device__ void load(const Inputs<T, kInputs>& x, std::size_t first) {
#pragma unroll
    for (int n = 0; n < kInputs; ++n) {
      if constexpr (kAccess == Access::vector) {
        of[n] = load_vector<kElements>(x.at[n] + first);
      } else {
#pragma unroll
        for (std::size_t k = 0; k < kElements; ++k) of[n].at[k] = x.at[n][first + k];
      }
    }
  }
  // Calls function(element, values of all inputs) for every element.
  template <typename Function>
  __device__ void for_each(const Function& function) const {
#pragma unroll
    for (std::size_t k = 0; k < kElements; ++k) {
      T values[kInputs];
#pragma unroll
      for (int n = 0; n < kInputs; ++n) values[n] = of[n].at[k];
      function(k, values);
    }
  }
};

// Calls body(first, vectors) for every run of kElements elements in [begin, end) that is this
// thread's. Several loads are under way before the first body is called.
template <std::size_t kElements, int kUnroll, Access kAccess = Access::vector, typename T,
          int kInputs, typename Body>
__device__ void for_vectors(const Inputs<T, kInputs>& x, std::size_t begin, std::size_t end,
                            const Body& body) {
  const std::size_t step = num_global_threads() * kElements;
  std::size_t i = begin + global_thread() * kElements;
  for (; i + (kUnroll - 1) * step < end; i += kUnroll * step) {
    InputVectors<kElements, T, kInputs> vectors[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) vectors[u].template load<kAccess>(x, i + u * step);
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) body(i + u * step, vectors[u]);
  }
  for (; i < end; i += step) {
    InputVectors<kElements, T, kInputs> vectors;
    vectors.template load<kAccess>(x, i);
    body(i, vectors);
  }
}

template <typename T, int kInputs>
bool are_aligned(const Inputs<T, kInputs>& x) {
  return std::all_of(std::begin(x.at), std::end(x.at),
                     [](const T* pointer) { return is_aligned(pointer); });
}

// in_vectors: elements that are read and written in vectors, all but a tail, or none where a
// pointer is not aligned.

template <typename T, int kInputs, typename Op>
__global__ void elementwise_kernel(Inputs<T, kInputs> x, T* y, std::size_t num_elements,
                                   std::size_t in_vectors, Op op) {
  if constexpr (requires { op.load(); }) op.load();
  const auto apply = [&](std::size_t first, const auto& inputs) {
    Vector<T, sizeof(inputs.of[0]) / sizeof(T)> results;
    inputs.for_each([&](std::size_t k, const auto& values) { results.at[k] = op(values); });
    store_vector(y + first, results);
  };
  for_vectors<kWidth<T>, 2>(x, 0, in_vectors, apply);
  for_vectors<1, 4>(x, in_vectors, num_elements, apply);
}

// y may be one of the inputs. One launch; none for no elements.
template <typename T, int kInputs, typename Op>
void launch_elementwise(runtime::Stream& stream, const char* operation, Inputs<T, kInputs> x, T* y,
                        std::size_t num_elements, Op op) {
  if (num_elements == 0) return;
  const bool aligned = is_aligned(y) && are_aligned(x);
  const std::size_t in_vectors = aligned ? num_elements / kWidth<T> * kWidth<T> : 0;
  const std::size_t wanted = std::max(in_vectors / kWidth<T>, num_elements - in_vectors);
  launch(stream, operation, covering(wanted, kThreads), elementwise_kernel<T, kInputs, Op>, x, y,
         num_elements, in_vectors, op);
}

}  // namespace lockstep::kernels::cuda
