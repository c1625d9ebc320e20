// A classifier's last layer, its loss, and the gradients up to the layer's input, in one launch
// where there are few classes: all of it belongs to one row or another, and a product of so few
// columns leaves most of a GPU idle while the next kernel waits for it.
//
// A warp takes a row at a time. Its lanes add up the products of every 32nd input, so that each of
// them then has all logits; what comes after needs no memory but the weights, which a block keeps
// in shared memory. Moves x and the weights in and the probabilities, the logits' gradient and
// grad_x out once (and x, or the values before the activation, in again for grad_x).
#include <cmath>
#include <cstdint>

#include "engine/runtime/cuda/cuda_stream.h"
#include "engine/runtime/cuda/shared_memory.h"
#include "kernels/cuda/activation.cuh"
#include "kernels/cuda/block_sum.cuh"
#include "kernels/cuda/checks.h"
#include "kernels/cuda/cross_entropy.cuh"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/fused_loss.h"

namespace lockstep::kernels::cuda {
namespace {

constexpr unsigned kMostBlocks = 1024;  // each reads all weights

template <typename T>
struct LastLayer {
  const T* x;
  std::size_t x_leading_dimension;
  const T* weight;
  std::size_t weight_leading_dimension;
  const T* bias;  // or nullptr
  const std::int64_t* labels;
  std::size_t rows;
  std::size_t in;
  std::size_t classes;
  T* probabilities;
  std::size_t probabilities_leading_dimension;
  T* loss;
  double divisor;  // rows for the mean, else 1
  const T* grad_loss;
  T* grad_logits;
  std::size_t grad_logits_leading_dimension;
  T* grad_x;  // or nullptr
  std::size_t grad_x_leading_dimension;
  const T* saved;  // what the gradient of the input's activation is taken of
  std::size_t saved_leading_dimension;
  DeviceFault* fault;
};

// A warp's sum, in all its lanes.
template <typename T>
__device__ T sum_in_all_lanes(T value) {
#pragma unroll
  for (unsigned distance = kWarp / 2; distance > 0; distance /= 2) {
    value += __shfl_xor_sync(kAllLanes, value, distance);
  }
  return value;
}

// The row's logits become probabilities. Returns its loss, NaN for a bad label.
template <typename T, unsigned kClasses>
__device__ double softmax_of_row(T (&row)[kClasses], std::size_t classes, std::int64_t label) {
  T largest = row[0];
#pragma unroll
  for (unsigned c = 1; c < kClasses; ++c) {
    if (c < classes) largest = larger(largest, row[c]);
  }
  T sum = 0;
  auto label_offset = static_cast<T>(NAN);
#pragma unroll
  for (unsigned c = 0; c < kClasses; ++c) {
    if (c >= classes) break;
    const T offset = row[c] - largest;
    if (static_cast<std::int64_t>(c) == label) label_offset = offset;
    row[c] = exp_of(offset);
    sum += row[c];
  }
  const T inverse = T(1) / sum;
#pragma unroll
  for (unsigned c = 0; c < kClasses; ++c) {
    if (c < classes) row[c] = rounded_product(row[c], inverse);
  }
  return static_cast<double>(log_of(sum)) - static_cast<double>(label_offset);
}

template <typename T, typename InputActivation, unsigned kClasses>
__global__ void last_layer_kernel(LastLayer<T> call, Workspace workspace) {
  const unsigned lane = threadIdx.x % kWarp;
  const std::size_t classes = call.classes;
  const std::size_t in = call.in;
  T* const weight = runtime::cuda::dynamic_shared_memory<T>();  // [classes, in]
  for (std::size_t c = threadIdx.x / kWarp; c < classes; c += kThreads / kWarp) {
    const T* const from = call.weight + c * call.weight_leading_dimension;
#pragma unroll 4
    for (std::size_t k = lane; k < in; k += kWarp) weight[c * in + k] = from[k];
  }
  __syncthreads();
  const T factor = static_cast<T>(*call.grad_loss / call.divisor);
  double loss = 0;  // of lane 0
  const std::size_t num_warps = num_global_threads() / kWarp;
  for (std::size_t i = global_thread() / kWarp; i < call.rows; i += num_warps) {
    const T* const x = call.x + i * call.x_leading_dimension;
    T row[kClasses];  // logits, then probabilities, then the logits' gradient
#pragma unroll
    for (unsigned c = 0; c < kClasses; ++c) row[c] = T(0);
#pragma unroll 2
    for (std::size_t k = lane; k < in; k += kWarp) {
      const T value = x[k];
#pragma unroll
      for (unsigned c = 0; c < kClasses; ++c) {
        if (c < classes) row[c] += value * weight[c * in + k];
      }
    }
#pragma unroll
    for (unsigned c = 0; c < kClasses; ++c) {
      if (c >= classes) break;
      row[c] = sum_in_all_lanes(row[c]);
      if (call.bias != nullptr) row[c] += call.bias[c];
    }
    const std::int64_t label = call.labels[i];
    const double row_loss = softmax_of_row<T, kClasses>(row, classes, label);
    const RowGradient<T> gradient{factor, label, is_within(label, classes)};
    if (lane == 0) {
      loss += row_loss;
      if (!gradient.is_good) report_fault(call.fault, FaultKind::label, label, classes);
    }
    T* const probabilities = call.probabilities + i * call.probabilities_leading_dimension;
    T* const grad_logits = call.grad_logits + i * call.grad_logits_leading_dimension;
#pragma unroll
    for (unsigned c = 0; c < kClasses; ++c) {
      if (c >= classes) break;
      if (c == lane) probabilities[c] = row[c];
      row[c] = gradient(c, row[c]);
      if (c == lane) grad_logits[c] = row[c];
    }
    if (call.grad_x == nullptr) continue;
    T* const grad_x = call.grad_x + i * call.grad_x_leading_dimension;
    const T* const saved = call.saved + i * call.saved_leading_dimension;
#pragma unroll 2
    for (std::size_t k = lane; k < in; k += kWarp) {
      T sum = 0;
#pragma unroll
      for (unsigned c = 0; c < kClasses; ++c) {
        if (c < classes) sum += row[c] * weight[c * in + k];
      }
      grad_x[k] = InputActivation::backward(saved[k], sum);
    }
  }
  sum_over_launch(loss, workspace,
                  [&](double total) { *call.loss = static_cast<T>(total / call.divisor); });
}

}  // namespace

void CudaBackend::linear_cross_entropy(Stream& stream, const LinearCrossEntropy& call) {
  const auto* name = "linear cross_entropy";
  checks::linear_cross_entropy(call);
  const std::size_t in = call.x.cols;
  const std::size_t classes = call.weight.rows;
  if (!fuses_linear_cross_entropy(call.x.dtype, call.x.rows, in, classes)) {
    return Backend::linear_cross_entropy(stream, call);
  }
  const ConstMatrixView& saved =
      needs_preactivation(call.input_activation) ? call.input_preactivation : call.x;
  for_floating(call.x.dtype, name, [&]<typename T>() {
    const LastLayer<T> layer{
        .x = data_of<T>(call.x),
        .x_leading_dimension = call.x.leading_dimension,
        .weight = data_of<T>(call.weight),
        .weight_leading_dimension = call.weight.leading_dimension,
        .bias = data_of<T>(call.bias),
        .labels = data_of<std::int64_t>(call.labels),
        .rows = call.x.rows,
        .in = in,
        .classes = classes,
        .probabilities = data_of<T>(call.probabilities),
        .probabilities_leading_dimension = call.probabilities.leading_dimension,
        .loss = data_of<T>(call.loss),
        .divisor = call.reduction == Reduction::mean ? static_cast<double>(call.x.rows) : 1.0,
        .grad_loss = data_of<T>(call.gradient.grad_loss),
        .grad_logits = data_of<T>(call.gradient.grad_logits),
        .grad_logits_leading_dimension = call.gradient.grad_logits.leading_dimension,
        .grad_x = data_of<T>(call.grad_x),
        .grad_x_leading_dimension = call.grad_x.leading_dimension,
        .saved = data_of<T>(saved),
        .saved_leading_dimension = saved.leading_dimension,
        .fault = runtime::cuda::cuda_stream(stream).fault()};
    LaunchShape shape = covering(call.x.rows * kWarp, kThreads, kMostBlocks);
    shape.shared_bytes = in * classes * sizeof(T);
    for_activation(call.input_activation, [&](auto activation) {
      using InputActivation = decltype(activation);
      const Workspace workspace = workspace_of(stream);
      if (classes <= 16) {
        launch(stream, name, shape, last_layer_kernel<T, InputActivation, 16>, layer, workspace);
      } else {
        launch(stream, name, shape, last_layer_kernel<T, InputActivation, kFusedLossClasses>, layer,
               workspace);
      }
    });
  });
}

}  // namespace lockstep::kernels::cuda
