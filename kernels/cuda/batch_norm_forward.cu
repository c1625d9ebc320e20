// Batch normalisation, forward, in two launches: the statistics of each feature (x once in), then
// y (x once in, y once out).
#include <cmath>

#include "kernels/cuda/checks.h"
#include "kernels/cuda/column_map.cuh"
#include "kernels/cuda/column_reduce.cuh"
#include "kernels/cuda/cuda_backend.h"

namespace lockstep::kernels::cuda {
namespace {

using Statistics = BatchNormForward::Statistics;

template <typename T>
struct Features {
  const T* x;
  std::size_t leading_dimension;
  std::size_t rows;
  std::size_t cols;
  T* mean;
  T* inverse_std;
  T* running_mean;
  T* running_var;
  double momentum;
  double epsilon;
};

// One pass: sums of x - shift and of its square, shift being the feature's first value. That keeps
// the digits which sums of x and x^2 would lose where the mean is large.
template <typename T>
struct BatchStatistics {
  static constexpr int kValues = 2;
  Features<T> f;

  __device__ double shift(std::size_t column) const {
    return f.rows > 0 ? static_cast<double>(f.x[column]) : 0;
  }
  __device__ void add(std::size_t row, std::size_t column, double (&sums)[2]) const {
    const double x = static_cast<double>(f.x[row * f.leading_dimension + column]);
    const double offset = x - shift(column);
    sums[0] += offset;
    sums[1] += offset * offset;
  }
  __device__ void finish(std::size_t j, const double (&totals)[2]) const {
    const double rows = static_cast<double>(f.rows);
    const double mean_offset = totals[0] / rows;
    const double mean = shift(j) + mean_offset;
    const double spread = totals[1] / rows - mean_offset * mean_offset;
    const double variance = spread < 0 ? 0 : spread;  // a NaN stays one
    f.mean[j] = static_cast<T>(mean);
    f.inverse_std[j] = static_cast<T>(1 / sqrt(variance + f.epsilon));
    const double keep = 1 - f.momentum;
    if (f.running_mean) {
      f.running_mean[j] = static_cast<T>(keep * f.running_mean[j] + f.momentum * mean);
    }
    if (f.running_var) {
      f.running_var[j] =
          static_cast<T>(keep * f.running_var[j] + f.momentum * variance * rows / (rows - 1));
    }
  }
};

template <typename T>
__global__ void running_statistics_kernel(Features<T> f) {
  for (std::size_t j = global_thread(); j < f.cols; j += num_global_threads()) {
    f.mean[j] = f.running_mean[j];
    f.inverse_std[j] = static_cast<T>(1 / sqrt(static_cast<double>(f.running_var[j]) + f.epsilon));
  }
}

template <typename T>
struct Normalise {
  const T* x;
  std::size_t x_leading_dimension;
  T* y;
  std::size_t y_leading_dimension;
  const T* mean;
  const T* inverse_std;
  const T* weight;
  const T* bias;

  struct Column {
    T mean;
    T factor;
    T shift;
  };
  __device__ Column column(std::size_t j) const {
    return {mean[j], inverse_std[j] * (weight ? weight[j] : T(1)), bias ? bias[j] : T(0)};
  }
  __device__ T read(std::size_t row, std::size_t j) const {
    return x[row * x_leading_dimension + j];
  }
  __device__ void write(std::size_t row, std::size_t j, const Column& column, T value) const {
    y[row * y_leading_dimension + j] = (value - column.mean) * column.factor + column.shift;
  }
};

template <typename T>
void run_forward(Stream& stream, const char* name, const BatchNormForward& call) {
  const std::size_t rows = call.x.rows;
  const std::size_t cols = call.x.cols;
  const Features<T> features{data_of<T>(call.x),
                             call.x.leading_dimension,
                             rows,
                             cols,
                             data_of<T>(call.mean),
                             data_of<T>(call.inverse_std),
                             data_of<T>(call.running_mean),
                             data_of<T>(call.running_var),
                             call.momentum,
                             call.epsilon};
  if (cols == 0) return;
  if (call.statistics == Statistics::batch) {
    launch_column_reduce(stream, name, rows, cols, BatchStatistics<T>{features});
  } else {
    launch(stream, name, covering(cols, kThreads), running_statistics_kernel<T>, features);
  }
  launch_column_map(
      stream, name, rows, cols,
      Normalise<T>{data_of<T>(call.x), call.x.leading_dimension, data_of<T>(call.y),
                   call.y.leading_dimension, data_of<T>(call.mean), data_of<T>(call.inverse_std),
                   data_of<T>(call.weight), data_of<T>(call.bias)});
}

}  // namespace

void CudaBackend::batch_norm_forward(Stream& stream, const BatchNormForward& call) {
  const auto* name = "batch_norm";
  checks::batch_norm_forward(call);
  for_floating(call.x.dtype, name, [&]<typename T>() { run_forward<T>(stream, name, call); });
}

}  // namespace lockstep::kernels::cuda
