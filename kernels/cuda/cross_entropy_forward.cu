// softmax and -log softmax[label] of every row, and their sum over the rows, in one launch; with
// the gradient of the logits, where it is wanted and a row has at most kFusedClasses. Moves the
// logits in and the probabilities, and the gradient, out once (longer rows: logits 3 times).
#include <cmath>
#include <cstdint>

#include "engine/runtime/cuda/cuda_stream.h"
#include "kernels/cuda/block_sum.cuh"
#include "kernels/cuda/checks.h"
#include "kernels/cuda/cross_entropy.cuh"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/math.cuh"

namespace lockstep::kernels::cuda {
namespace {

constexpr std::size_t kFusedClasses = 1024;  // a row of so many stays in a warp's registers

template <typename T>
struct CrossEntropy {
  const T* logits;
  std::size_t leading_dimension;
  const std::int64_t* labels;
  T* probabilities;
  std::size_t probabilities_leading_dimension;
  std::size_t rows;
  std::size_t classes;
  T* loss;
  double divisor;  // rows for the mean, else 1
  DeviceFault* fault;
  const T* grad_loss;
  T* grad_logits;  // or nullptr
  std::size_t grad_leading_dimension;

  // What a row with this label adds to the loss beside -log softmax: NaN for a bad one.
  __device__ double checked(std::int64_t label) const {
    if (is_within(label, classes)) return 0;
    report_fault(fault, FaultKind::label, label, classes);
    return static_cast<double>(NAN);
  }
  __device__ void finish(double total) const { *loss = static_cast<T>(total / divisor); }
};

// Rows of at most kLanes * kItems classes: a row stays in registers.
template <typename T, unsigned kLanes, int kItems>
__global__ void forward_kernel(CrossEntropy<T> call, Workspace workspace) {
  double loss = 0;
  const bool has_gradient = call.grad_logits != nullptr;
  const T factor = has_gradient ? static_cast<T>(*call.grad_loss / call.divisor) : T(0);
  for_row_groups<kLanes>(call.rows, [&](std::size_t row, unsigned lane, bool exists) {
    const std::int64_t label = exists ? call.labels[row] : 0;
    const T* const logits = call.logits + row * call.leading_dimension;
    const auto is_class = [&](int k) { return exists && lane + k * kLanes < call.classes; };
    T x[kItems];
#pragma unroll
    for (int k = 0; k < kItems; ++k) {
      x[k] = is_class(k) ? logits[lane + k * kLanes] : -static_cast<T>(INFINITY);
    }
    T largest = x[0];
#pragma unroll
    for (int k = 1; k < kItems; ++k) largest = larger(largest, x[k]);
#pragma unroll
    for (unsigned distance = kLanes / 2; distance > 0; distance /= 2) {
      largest = larger(largest, __shfl_xor_sync(kAllLanes, largest, distance));
    }
    T sum = 0;
    T label_offset = 0;
#pragma unroll
    for (int k = 0; k < kItems; ++k) {
      if (static_cast<std::int64_t>(lane + k * kLanes) == label) label_offset = x[k] - largest;
      x[k] = is_class(k) ? exp_of(x[k] - largest) : T(0);
      sum += x[k];
    }
#pragma unroll
    for (unsigned distance = kLanes / 2; distance > 0; distance /= 2) {
      sum += __shfl_xor_sync(kAllLanes, sum, distance);
    }
    if (!exists) return;
    T* const p = call.probabilities + row * call.probabilities_leading_dimension;
    const T inverse = T(1) / sum;
#pragma unroll
    for (int k = 0; k < kItems; ++k) {
      x[k] = rounded_product(x[k], inverse);
      if (is_class(k)) p[lane + k * kLanes] = x[k];
    }
    if (has_gradient) {
      const RowGradient<T> gradient{factor, label, is_within(label, call.classes)};
      T* const grad = call.grad_logits + row * call.grad_leading_dimension;
#pragma unroll
      for (int k = 0; k < kItems; ++k) {
        if (is_class(k)) grad[lane + k * kLanes] = gradient(lane + k * kLanes, x[k]);
      }
    }
    // The lane that holds the label adds the row's loss.
    if (static_cast<std::int64_t>(lane) == label % static_cast<std::int64_t>(kLanes)) {
      loss += static_cast<double>(log_of(sum)) - static_cast<double>(label_offset);
    }
    if (lane == 0) loss += call.checked(label);
  });
  sum_over_launch(loss, workspace, [&](double total) { call.finish(total); });
}

// The largest value of a block's threads, in all of them.
template <typename T>
__device__ T block_max(T value) {
  __shared__ T warps[kWarp];
#pragma unroll
  for (unsigned distance = kWarp / 2; distance > 0; distance /= 2) {
    value = larger(value, __shfl_xor_sync(kAllLanes, value, distance));
  }
  if (threadIdx.x % kWarp == 0) warps[threadIdx.x / kWarp] = value;
  __syncthreads();
  value = warps[0];
  for (unsigned w = 1; w < kThreads / kWarp; ++w) value = larger(value, warps[w]);
  __syncthreads();
  return value;
}

// Any number of classes: a block per row, which reads it for the maximum, the sum and the result.
template <typename T>
__global__ void forward_of_long_rows_kernel(CrossEntropy<T> call, Workspace workspace) {
  __shared__ double row_sum;
  double loss = 0;  // of thread 0
  for (std::size_t row = blockIdx.x; row < call.rows; row += gridDim.x) {
    const T* const logits = call.logits + row * call.leading_dimension;
    T* const p = call.probabilities + row * call.probabilities_leading_dimension;
    T largest = -static_cast<T>(INFINITY);
#pragma unroll 4
    for (std::size_t j = threadIdx.x; j < call.classes; j += kThreads) {
      largest = larger(largest, logits[j]);
    }
    largest = block_max(largest);
    double sum = 0;
#pragma unroll 4
    for (std::size_t j = threadIdx.x; j < call.classes; j += kThreads) {
      sum += static_cast<double>(exp_of(logits[j] - largest));
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) {
      row_sum = sum;
      const std::int64_t label = call.labels[row];
      const double wrong = call.checked(label);
      loss += wrong == 0 ? log(sum) - static_cast<double>(logits[label] - largest) : wrong;
    }
    __syncthreads();
    const T inverse = static_cast<T>(1 / row_sum);
#pragma unroll 4
    for (std::size_t j = threadIdx.x; j < call.classes; j += kThreads) {
      p[j] = exp_of(logits[j] - largest) * inverse;
    }
  }
  sum_over_launch(loss, workspace, [&](double total) { call.finish(total); });
}

}  // namespace

void CudaBackend::softmax_cross_entropy_forward(Stream& stream, ConstMatrixView logits,
                                                ConstTensorView labels, Reduction reduction,
                                                MatrixView probabilities, TensorView loss,
                                                const CrossEntropyGradient& gradient) {
  const auto* name = "cross_entropy";
  checks::softmax_cross_entropy_forward(logits, labels, probabilities, loss, gradient);
  for_floating(logits.dtype, name, [&]<typename T>() {
    const CrossEntropy<T> call{
        .logits = data_of<T>(logits),
        .leading_dimension = logits.leading_dimension,
        .labels = data_of<std::int64_t>(labels),
        .probabilities = data_of<T>(probabilities),
        .probabilities_leading_dimension = probabilities.leading_dimension,
        .rows = logits.rows,
        .classes = logits.cols,
        .loss = data_of<T>(loss),
        .divisor = reduction == Reduction::mean ? static_cast<double>(logits.rows) : 1.0,
        .fault = runtime::cuda::cuda_stream(stream).fault(),
        .grad_loss = data_of<T>(gradient.grad_loss),
        .grad_logits = data_of<T>(gradient.grad_logits),
        .grad_leading_dimension = gradient.grad_logits.leading_dimension};
    const Workspace workspace = workspace_of(stream);
    const auto run = [&]<unsigned kLanes, int kItems>() {
      launch(stream, name, row_groups<kLanes>(logits.rows), forward_kernel<T, kLanes, kItems>, call,
             workspace);
    };
    if (logits.cols <= 16) return run.template operator()<4, 4>();
    if (logits.cols <= 128) return run.template operator()<32, 4>();
    if (logits.cols <= kFusedClasses) return run.template operator()<32, 32>();
    launch(stream, name, {covering(logits.rows, 1, 4096).grid, dim3(kThreads)},
           forward_of_long_rows_kernel<T>, call, workspace);
  });
  if (gradient.grad_logits.data == nullptr || fuses_cross_entropy_gradient(logits.cols)) return;
  softmax_cross_entropy_backward(stream, probabilities, labels, reduction, gradient.grad_loss,
                                 gradient.grad_logits);
}

bool CudaBackend::fuses_cross_entropy_gradient(std::size_t classes) const {
  return classes <= kFusedClasses;
}

}  // namespace lockstep::kernels::cuda
