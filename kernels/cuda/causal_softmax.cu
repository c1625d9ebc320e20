// The softmax of attention by its formula, which keeps all scores: a warp per row.
#include <cmath>

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/element_types.cuh"
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/sequence_calls.h"

namespace lockstep::kernels::cuda {
namespace {

template <typename T>
__global__ void causal_softmax_kernel(const T* scores, std::size_t rows, std::size_t cols,
                                      std::size_t length, T scale, T* p) {
  for_rows(rows, [&](std::size_t row, unsigned lane) {
    const T* const from = scores + row * cols;
    T* const to = p + row * cols;
    const std::size_t seen = row % length + 1;
    T top = -static_cast<T>(INFINITY);
    for (std::size_t j = lane; j < seen; j += kWarp) {
      const T score = scale * from[j];
      top = score > top ? score : top;
    }
    top = largest_in_all_lanes(top);
    double sum = 0;
    for (std::size_t j = lane; j < seen; j += kWarp) {
      sum += static_cast<double>(exp_of(scale * from[j] - top));
    }
    sum = sum_in_all_lanes(sum);
    const T inverse = static_cast<T>(1 / sum);
    for (std::size_t j = lane; j < cols; j += kWarp) {
      to[j] = j < seen ? exp_of(scale * from[j] - top) * inverse : T(0);
    }
  });
}

template <typename T>
__global__ void causal_softmax_gradient_kernel(const T* p, const T* grad_p, std::size_t rows,
                                               std::size_t cols, T scale, T* grad_scores) {
  for_rows(rows, [&](std::size_t row, unsigned lane) {
    const T* const share = p + row * cols;
    const T* const grad = grad_p + row * cols;
    double sum = 0;
    for (std::size_t j = lane; j < cols; j += kWarp) {
      sum += static_cast<double>(share[j]) * static_cast<double>(grad[j]);
    }
    sum = sum_in_all_lanes(sum);
    const T projection = static_cast<T>(sum);
    for (std::size_t j = lane; j < cols; j += kWarp) {
      grad_scores[row * cols + j] = scale * share[j] * (grad[j] - projection);
    }
  });
}

}  // namespace

void CudaBackend::causal_softmax_forward(Stream& stream, const CausalSoftmaxForward& call) {
  if (call.scores.num_elements() == 0) return;
  const std::size_t rows = call.scores.batch * call.scores.rows;
  for_floating(call.scores.dtype, "causal_softmax", [&]<typename T>() {
    launch(stream, "causal_softmax", covering(rows * kWarp, kThreads), causal_softmax_kernel<T>,
           data_of<T>(call.scores), rows, call.scores.cols, call.scores.rows,
           static_cast<T>(call.scale), data_of<T>(call.p));
  });
}

void CudaBackend::causal_softmax_backward(Stream& stream, const CausalSoftmaxBackward& call) {
  if (call.p.num_elements() == 0) return;
  const std::size_t rows = call.p.batch * call.p.rows;
  for_floating(call.p.dtype, "causal_softmax backward", [&]<typename T>() {
    launch(stream, "causal_softmax backward", covering(rows * kWarp, kThreads),
           causal_softmax_gradient_kernel<T>, data_of<T>(call.p), data_of<T>(call.grad_p), rows,
           call.p.cols, static_cast<T>(call.scale), data_of<T>(call.grad_scores));
  });
}

}  // namespace lockstep::kernels::cuda
