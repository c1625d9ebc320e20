// The largest element of each row: a warp per row, every element read once.
#include <cmath>
#include <cstdint>

#include "kernels/cuda/checks.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/vector.cuh"

namespace lockstep::kernels::cuda {
namespace {

template <typename T>
struct Candidate {
  T value;
  std::int64_t column;  // -1: none
};

// Whether b comes before a: larger (a NaN counts as larger than everything), or as large and
// further left.
template <typename T>
__device__ bool is_better(const Candidate<T>& a, const Candidate<T>& b) {
  if (b.column < 0 || a.column < 0) return a.column < 0;
  const bool a_is_nan = a.value != a.value;
  const bool b_is_nan = b.value != b.value;
  if (a_is_nan != b_is_nan) return b_is_nan;
  if (!a_is_nan && a.value != b.value) return b.value > a.value;
  return b.column < a.column;
}

template <typename T>
__global__ void argmax_kernel(const T* x, std::size_t rows, std::size_t cols,
                              std::size_t leading_dimension, std::int64_t* y) {
  const unsigned lane = threadIdx.x % kWarp;
  for (std::size_t row = global_thread() / kWarp; row < rows; row += num_global_threads() / kWarp) {
    const T* values = x + row * leading_dimension;
    Candidate<T> best{T(0), -1};
#pragma unroll 4
    for (std::size_t column = lane; column < cols; column += kWarp) {
      const Candidate<T> next{values[column], static_cast<std::int64_t>(column)};
      if (is_better(best, next)) best = next;
    }
    for (unsigned distance = kWarp / 2; distance > 0; distance /= 2) {
      const Candidate<T> other{__shfl_down_sync(0xffffffffu, best.value, distance),
                               __shfl_down_sync(0xffffffffu, best.column, distance)};
      if (is_better(best, other)) best = other;
    }
    if (lane == 0) y[row] = best.column;
  }
}

}  // namespace

void CudaBackend::argmax_rows(Stream& stream, ConstMatrixView x, TensorView y) {
  checks::argmax_rows(x, y);
  if (x.rows == 0) return;
  for_floating(x.dtype, "argmax_rows", [&]<typename T>() {
    launch(stream, "argmax_rows", covering(x.rows * kWarp, kThreads), argmax_kernel<T>,
           data_of<T>(x), x.rows, x.cols, x.leading_dimension, data_of<std::int64_t>(y));
  });
}

}  // namespace lockstep::kernels::cuda
