// *y = finish(sum over i of op(x0[i], x1[i], ...)), in one launch and in double.
//
// An operation is a functor `double operator()(const T (&x)[kInputs]) const` for the device. Every
// element is read once. Which thread adds which element does not depend on their addresses.
#pragma once

#include <algorithm>

#include "kernels/cuda/block_sum.cuh"
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/launch.h"

namespace lockstep::kernels::cuda {

template <typename T, int kInputs, typename Op>
__global__ void reduce_kernel(Inputs<T, kInputs> x, std::size_t num_elements, Access access, Op op,
                              T* y, double divisor, Workspace workspace) {
  double sum = 0;
  const auto add = [&](std::size_t, const auto& inputs) {
    inputs.for_each([&](std::size_t, const auto& values) { sum += op(values); });
  };
  const std::size_t in_vectors = num_elements / kWidth<T> * kWidth<T>;
  if (access == Access::vector) {
    for_vectors<kWidth<T>, 4>(x, 0, in_vectors, add);
  } else {
    for_vectors<kWidth<T>, 4, Access::single>(x, 0, in_vectors, add);
  }
  for_vectors<1, 1>(x, in_vectors, num_elements, add);
  sum_over_launch(sum, workspace, [=](double total) { *y = static_cast<T>(total / divisor); });
}

// One launch, also for no elements. A block takes 4096 elements or more.
template <typename T, int kInputs, typename Op>
void launch_reduce(runtime::Stream& stream, const char* operation, Inputs<T, kInputs> x,
                   std::size_t num_elements, Op op, T* y, double divisor) {
  const Access access = are_aligned(x) ? Access::vector : Access::single;
  constexpr std::size_t kPerThread = 16;
  launch(stream, operation, covering((num_elements + kPerThread - 1) / kPerThread, kThreads, 1024),
         reduce_kernel<T, kInputs, Op>, x, num_elements, access, op, y, divisor,
         workspace_of(stream));
}

}  // namespace lockstep::kernels::cuda
