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

// A NaN need not be the maximum: it then shows up in the sum.
template <typename T>
__device__ T larger(T a, T b) {
  return b > a ? b : a;
}

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

  // Checks a label, and reports a bad one.
  __device__ bool is_good(std::int64_t label) const {
    if (is_within(label, classes)) return true;
    report_fault(fault, FaultKind::label, label, classes);
    return false;
  }
};

// A warp takes a row and reads it for the maximum, the sum and the result. It works in place, so it
// must not write earlier.
template <typename T>
__global__ void forward_kernel(CrossEntropy<T> call, Workspace workspace) {
  const unsigned lane = threadIdx.x % kWarp;
  double loss = 0;
  for (std::size_t row = global_thread() / kWarp; row < call.rows;
       row += num_global_threads() / kWarp) {
    const T* const logits = call.logits + row * call.leading_dimension;
    T* const p = call.probabilities + row * call.probabilities_leading_dimension;
    T largest = -static_cast<T>(INFINITY);
#pragma unroll 4
    for (std::size_t j = lane; j < call.classes; j += kWarp) largest = larger(largest, logits[j]);
    for (unsigned distance = kWarp / 2; distance > 0; distance /= 2) {
      largest = larger(largest, __shfl_xor_sync(kAllLanes, largest, distance));
    }
    double sum = 0;
#pragma unroll 4
    for (std::size_t j = lane; j < call.classes; j += kWarp) {
      sum += static_cast<double>(exp_of(logits[j] - largest));
    }
    for (unsigned distance = kWarp / 2; distance > 0; distance /= 2) {
      sum += __shfl_xor_sync(kAllLanes, sum, distance);
    }
    if (lane == 0) {
      const std::int64_t label = call.labels[row];
      const bool is_good = call.is_good(label);
      loss += is_good ? log(sum) - static_cast<double>(logits[label] - largest)
                      : static_cast<double>(NAN);
    }
    __syncwarp();
    const T inverse = static_cast<T>(1 / sum);
#pragma unroll 4
    for (std::size_t j = lane; j < call.classes; j += kWarp) {
      p[j] = exp_of(logits[j] - largest) * inverse;
    }
  }
  sum_over_launch(loss, workspace,
                  [&](double total) { *call.loss = static_cast<T>(total / call.divisor); });
}

}  // namespace

void CudaBackend::softmax_cross_entropy_forward(Stream& stream, ConstMatrixView logits,
                                                ConstTensorView labels, Reduction reduction,
                                                MatrixView probabilities, TensorView loss) {
  const auto* name = "cross_entropy";
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
        .fault = runtime::cuda::cuda_stream(stream).fault()};
    launch(stream, name, covering(logits.rows * kWarp, kThreads, 4096), forward_kernel<T>, call,
           workspace_of(stream));
  });
}

namespace {

template <typename T>
struct CrossEntropyGradient {
  const T* probabilities;
  std::size_t leading_dimension;
  const std::int64_t* labels;
  const T* grad_loss;
  double divisor;  // rows for the mean, else 1
  T* grad_logits;
  std::size_t grad_leading_dimension;
  std::size_t rows;
  std::size_t classes;
  DeviceFault* fault;
};

// A bad label has no gradient.
template <typename T>
__global__ void backward_kernel(CrossEntropyGradient<T> call) {
  const T factor = static_cast<T>(*call.grad_loss / call.divisor);
  for_matrix(call.rows, call.classes, [&](std::size_t row, std::size_t j) {
    const std::int64_t label = call.labels[row];
    const bool is_good = is_within(label, call.classes);
    if (!is_good && j == 0) report_fault(call.fault, FaultKind::label, label, call.classes);
    const T target = static_cast<std::int64_t>(j) == label ? T(1) : T(0);
    const T p = call.probabilities[row * call.leading_dimension + j];
    call.grad_logits[row * call.grad_leading_dimension + j] =
        is_good ? (p - target) * factor : T(0);
  });
}

}  // namespace

void CudaBackend::softmax_cross_entropy_backward(Stream& stream, ConstMatrixView probabilities,
                                                 ConstTensorView labels, Reduction reduction,
                                                 ConstTensorView grad_loss,
                                                 MatrixView grad_logits) {
  const auto* name = "cross_entropy backward";
  const std::size_t rows = probabilities.rows;
  const std::size_t classes = probabilities.cols;
  if (rows == 0) return;
  for_floating(probabilities.dtype, name, [&]<typename T>() {
    const CrossEntropyGradient<T> call{
        .probabilities = data_of<T>(probabilities),
        .leading_dimension = probabilities.leading_dimension,
        .labels = data_of<std::int64_t>(labels),
        .grad_loss = data_of<T>(grad_loss),
        .divisor = reduction == Reduction::mean ? static_cast<double>(rows) : 1.0,
        .grad_logits = data_of<T>(grad_logits),
        .grad_leading_dimension = grad_logits.leading_dimension,
        .rows = rows,
        .classes = classes,
        .fault = runtime::cuda::cuda_stream(stream).fault()};
    launch(stream, name, row_tiles(rows, classes), backward_kernel<T>, call);
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

// The divisor of the sum: the number of elements for the mean.
double divisor(Reduction reduction, std::size_t num_elements) {
  return reduction == Reduction::mean ? static_cast<double>(num_elements) : 1.0;
}

}  // namespace

void CudaBackend::mse_forward(Stream& stream, ConstTensorView x, ConstTensorView target,
                              Reduction reduction, TensorView loss) {
  for_floating(x.dtype, "mse", [&]<typename T>() {
    launch_reduce(stream, "mse", data_of<T>(loss), x.num_elements,
                  divisor(reduction, x.num_elements), SquaredDifference<T>{}, data_of<T>(x),
                  data_of<T>(target));
  });
}

void CudaBackend::mse_backward(Stream& stream, ConstTensorView x, ConstTensorView target,
                               Reduction reduction, ConstTensorView grad_loss, TensorView grad_x) {
  const auto* name = "mse backward";
  for_floating(x.dtype, name, [&]<typename T>() {
    launch_elementwise(
        stream, name, data_of<T>(grad_x), grad_x.num_elements,
        SquaredGradient<T>{data_of<T>(grad_loss), divisor(reduction, x.num_elements), T(0)},
        data_of<T>(x), data_of<T>(target));
  });
}

}  // namespace lockstep::kernels::cuda
