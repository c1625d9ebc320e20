// The softmax of attention by its formula, which keeps all scores: a warp per row.
#include <cmath>

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/element_types.cuh"
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/sequence_calls.h"

namespace lockstep::kernels::cuda {
namespace {

template <typename X, typename T = ArithmeticOf<X>>
__global__ void causal_softmax_kernel(const X* scores, std::size_t rows, std::size_t cols,
                                      std::size_t length, T scale, X* p) {
  for_rows(rows, [&](std::size_t row, unsigned lane) {
    const X* const from = scores + row * cols;
    X* const to = p + row * cols;
    const std::size_t seen = row % length + 1;
    T top = -static_cast<T>(INFINITY);
    for (std::size_t j = lane; j < seen; j += kWarp) {
      const T score = scale * number(from[j]);
      top = score > top ? score : top;
    }
    top = largest_in_all_lanes(top);
    double sum = 0;
    for (std::size_t j = lane; j < seen; j += kWarp) {
      sum += static_cast<double>(exp_of(scale * number(from[j]) - top));
    }
    sum = sum_in_all_lanes(sum);
    const T inverse = static_cast<T>(1 / sum);
    for (std::size_t j = lane; j < cols; j += kWarp) {
      const T value = j < seen ? exp_of(scale * number(from[j]) - top) * inverse : T(0);
      to[j] = static_cast<X>(value);
    }
  });
}

template <typename X, typename T = ArithmeticOf<X>>
__global__ void causal_softmax_gradient_kernel(const X* p, const X* grad_p, std::size_t rows,
                                               std::size_t cols, T scale, X* grad_scores) {
  for_rows(rows, [&](std::size_t row, unsigned lane) {
    const X* const share = p + row * cols;
    const X* const grad = grad_p + row * cols;
    double sum = 0;
    for (std::size_t j = lane; j < cols; j += kWarp) {
      sum += static_cast<double>(number(share[j])) * static_cast<double>(number(grad[j]));
    }
    sum = sum_in_all_lanes(sum);
    const T projection = static_cast<T>(sum);
    for (std::size_t j = lane; j < cols; j += kWarp) {
      const T value = scale * number(share[j]) * (number(grad[j]) - projection);
      grad_scores[row * cols + j] = static_cast<X>(value);
    }
  });
}

}  // namespace

void CudaBackend::causal_softmax_forward(Stream& stream, const CausalSoftmaxForward& call) {
  if (call.scores.num_elements() == 0) return;
  const std::size_t rows = call.scores.batch * call.scores.rows;
  for_activations(call.scores.dtype, "causal_softmax", [&]<typename X>() {
    launch(stream, "causal_softmax", covering(rows * kWarp, kThreads), causal_softmax_kernel<X>,
           data_of<X>(call.scores), rows, call.scores.cols, call.scores.rows,
           static_cast<ArithmeticOf<X>>(call.scale), data_of<X>(call.p));
  });
}

void CudaBackend::causal_softmax_backward(Stream& stream, const CausalSoftmaxBackward& call) {
  if (call.p.num_elements() == 0) return;
  const std::size_t rows = call.p.batch * call.p.rows;
  for_activations(call.p.dtype, "causal_softmax backward", [&]<typename X>() {
    launch(stream, "causal_softmax backward", covering(rows * kWarp, kThreads),
           causal_softmax_gradient_kernel<X>, data_of<X>(call.p), data_of<X>(call.grad_p), rows,
           call.p.cols, static_cast<ArithmeticOf<X>>(call.scale), data_of<X>(call.grad_scores));
  });
}

}  // namespace lockstep::kernels::cuda
