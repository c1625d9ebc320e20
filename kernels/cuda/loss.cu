// Losses. Cross-entropy: forward reads the logits 3 times and writes the probabilities once; with a
// few thousand classes the second and third time read from the cache, with a GPT's vocabulary they
// do not. Backward reads the probabilities and writes the gradient. The mean squared error: forward
// reads x and target once, backward also writes the gradient.
#include <cmath>
#include <cstdint>

#include "engine/runtime/cuda/cuda_stream.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/element_types.cuh"
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/reduce.cuh"

namespace lockstep::kernels::cuda {
namespace {

// The divisor of a loss's sum: the number of terms for the mean.
double divisor(Reduction reduction, std::size_t num_terms) {
  return reduction == Reduction::mean ? static_cast<double>(num_terms) : 1.0;
}

// A NaN need not be the maximum: it then shows up in the sum.
template <typename T>
__device__ T larger(T a, T b) {
  return b > a ? b : a;
}

// A warp takes a row and reads it for the maximum, the sum and the result. It works in place, so it
// must not write earlier. divisor: of the loss, rows for the mean, else 1. From bfloat16
// probabilities the label's 1 is subtracted here, because one near 1 has no bits for its distance.
template <typename X, typename T = ArithmeticOf<X>>
__global__ void forward_kernel(std::size_t rows, std::size_t classes, Rows<const X> logit_rows,
                               const std::int64_t* labels, Rows<X> probability_rows, T* result,
                               double divisor, DeviceFault* fault, Workspace workspace) {
  double loss = 0;
  for_rows(rows, [&](std::size_t row, unsigned lane) {
    const X* const logits = logit_rows[row];
    X* const p = probability_rows[row];
    const std::int64_t label = labels[row];
    T largest = -static_cast<T>(INFINITY);
#pragma unroll 4
    for (std::size_t j = lane; j < classes; j += kWarp)
      largest = larger(largest, number(logits[j]));
    largest = largest_in_all_lanes(largest);
    double sum = 0;
#pragma unroll 4
    for (std::size_t j = lane; j < classes; j += kWarp) {
      sum += static_cast<double>(exp_of(number(logits[j]) - largest));
    }
    sum = sum_in_all_lanes(sum);
    if (lane == 0) {
      const bool is_good = is_within(label, classes);
      if (!is_good) report_fault(fault, FaultKind::label, label, classes);
      loss += is_good ? log(sum) - static_cast<double>(number(logits[label]) - largest)
                      : static_cast<double>(NAN);
    }
    __syncwarp();
    const T inverse = static_cast<T>(1 / sum);
#pragma unroll 4
    for (std::size_t j = lane; j < classes; j += kWarp) {
      T value = exp_of(number(logits[j]) - largest) * inverse;
      if (is_half<X> && static_cast<std::int64_t>(j) == label) value -= T(1);
      p[j] = static_cast<X>(value);
    }
  });
  sum_over_launch(loss, workspace,
                  [&](double total) { *result = static_cast<T>(total / divisor); });
}

}  // namespace

void CudaBackend::softmax_cross_entropy_forward(Stream& stream,
                                                const SoftmaxCrossEntropyForward& call) {
  const auto* name = "cross_entropy";
  for_activations(call.logits.dtype, name, [&]<typename X>() {
    using T = ArithmeticOf<X>;
    launch(stream, name, covering(call.logits.rows * kWarp, kThreads, 4096), forward_kernel<X>,
           call.logits.rows, call.logits.cols, rows_of<X>(call.logits),
           data_of<std::int64_t>(call.labels), rows_of<X>(call.probabilities),
           data_of<T>(call.loss), divisor(call.reduction, call.logits.rows),
           runtime::cuda::cuda_stream(stream).fault(), workspace_of(stream));
  });
}

namespace {

// A bad label has no gradient.
template <typename X, typename T = ArithmeticOf<X>>
__global__ void backward_kernel(std::size_t rows, std::size_t classes, Rows<const X> probabilities,
                                const std::int64_t* labels, const T* grad_loss, double divisor,
                                Rows<X> grad_logits, DeviceFault* fault) {
  const T factor = static_cast<T>(*grad_loss / divisor);
  for_matrix(rows, classes, [&](std::size_t row, std::size_t j) {
    const std::int64_t label = labels[row];
    const bool is_good = is_within(label, classes);
    if (!is_good && j == 0) report_fault(fault, FaultKind::label, label, classes);
    const bool is_hit = !is_half<X> && static_cast<std::int64_t>(j) == label;
    const T target = is_hit ? T(1) : T(0);
    const T grad = is_good ? (number(probabilities[row][j]) - target) * factor : T(0);
    grad_logits[row][j] = static_cast<X>(grad);
  });
}

}  // namespace

void CudaBackend::softmax_cross_entropy_backward(Stream& stream,
                                                 const SoftmaxCrossEntropyBackward& call) {
  const auto* name = "cross_entropy backward";
  const std::size_t rows = call.probabilities.rows;
  const std::size_t classes = call.probabilities.cols;
  if (rows == 0) return;
  for_activations(call.probabilities.dtype, name, [&]<typename X>() {
    using T = ArithmeticOf<X>;
    launch(stream, name, row_tiles(rows, classes), backward_kernel<X>, rows, classes,
           rows_of<X>(call.probabilities), data_of<std::int64_t>(call.labels),
           data_of<T>(call.grad_loss), divisor(call.reduction, rows), rows_of<X>(call.grad_logits),
           runtime::cuda::cuda_stream(stream).fault());
  });
}

// The mean squared error: forward reads x and target once, backward also writes the gradient.

namespace {

template <typename T>
struct SquaredDifference {
  __device__ double operator()(T x, T target) const {
    const double difference = static_cast<double>(x) - static_cast<double>(target);
    return difference * difference;
  }
};

template <typename T>
struct SquaredGradient {
  const T* grad_loss;
  double divisor;
  T factor;  // 2 * grad_loss[0] / divisor

  __device__ void load() { factor = static_cast<T>(2 * *grad_loss / divisor); }
  __device__ T operator()(T x, T target) const { return factor * (x - target); }
};

}  // namespace

void CudaBackend::mse_forward(Stream& stream, const MseForward& call) {
  for_floating(call.x.dtype, "mse", [&]<typename T>() {
    launch_reduce(stream, "mse", data_of<T>(call.loss), call.x.num_elements,
                  divisor(call.reduction, call.x.num_elements), SquaredDifference<T>{},
                  data_of<T>(call.x), data_of<T>(call.target));
  });
}

void CudaBackend::mse_backward(Stream& stream, const MseBackward& call) {
  const auto* name = "mse backward";
  for_floating(call.x.dtype, name, [&]<typename T>() {
    launch_elementwise(stream, name, data_of<T>(call.grad_x), call.grad_x.num_elements,
                       SquaredGradient<T>{data_of<T>(call.grad_loss),
                                          divisor(call.reduction, call.x.num_elements), T(0)},
                       data_of<T>(call.x), data_of<T>(call.target));
  });
}

}  // namespace lockstep::kernels::cuda
