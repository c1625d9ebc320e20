// Batch normalisation. Forward takes two launches: the statistics of each feature (reads x once),
// then y (reads x and writes y once). Backward takes two for up to 4096 features: sums over the
// batch (reads x and grad_y once), then grad_x (reads x and grad_y once, writes grad_x once).
#include <algorithm>
#include <cmath>

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/element_types.cuh"
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/norm_calls.h"

namespace lockstep::kernels::cuda {
namespace {

template <typename X>
struct Features {
  using T = ArithmeticOf<X>;
  Rows<const X> x;
  Rows<X> y;
  std::size_t rows;
  std::size_t cols;
  const T* weight;  // or nullptr: ones
  const T* bias;    // or nullptr: zeros
  T* mean;
  T* inverse_std;
  T* running_mean;
  T* running_var;
  double momentum;
  double epsilon;

  // Keeps a feature's statistics over `count` rows for the launch that normalises, and updates the
  // running ones.
  __device__ void set(std::size_t j, double mean_of_rows, double variance, double count) const {
    mean[j] = static_cast<T>(mean_of_rows);
    inverse_std[j] = static_cast<T>(1 / sqrt(variance + epsilon));
    const double keep = 1 - momentum;
    if (running_mean) {
      running_mean[j] = static_cast<T>(keep * running_mean[j] + momentum * mean_of_rows);
    }
    if (running_var) {
      running_var[j] =
          static_cast<T>(keep * running_var[j] + momentum * variance * count / (count - 1));
    }
  }
};

// One pass: sums of x - shift and of its square, where shift is the feature's first value. That
// keeps the digits which sums of x and x^2 would lose for a large mean.
template <typename X>
struct BatchStatistics {
  static constexpr int kValues = 2;
  Features<X> f;

  __device__ double shift(std::size_t j) const {
    return f.rows > 0 ? static_cast<double>(number(f.x[0][j])) : 0;
  }
  __device__ void add(std::size_t row, std::size_t j, double (&sums)[2]) const {
    const double offset = static_cast<double>(number(f.x[row][j])) - shift(j);
    sums[0] += offset;
    sums[1] += offset * offset;
  }
  __device__ void finish(std::size_t j, const double (&totals)[2]) const {
    const double rows = static_cast<double>(f.rows);
    const double mean_offset = totals[0] / rows;
    const double spread = totals[1] / rows - mean_offset * mean_offset;
    f.set(j, shift(j) + mean_offset, spread < 0 ? 0 : spread, rows);  // a NaN stays NaN
  }
};

// The same as moments for other replicas: a mean and a sum of squared deviations; 0 for no rows.
template <typename X>
struct BatchMoments {
  static constexpr int kValues = 2;
  BatchStatistics<X> statistics;
  double* moments;

  __device__ void add(std::size_t row, std::size_t j, double (&sums)[2]) const {
    statistics.add(row, j, sums);
  }
  __device__ void finish(std::size_t j, const double (&totals)[2]) const {
    const Features<X>& f = statistics.f;
    const double rows = static_cast<double>(f.rows);
    const double squares = f.rows > 0 ? totals[1] - totals[0] * totals[0] / rows : 0;
    moments[j] = f.rows > 0 ? statistics.shift(j) + totals[0] / rows : 0;
    moments[f.cols + j] = squares < 0 ? 0 : squares;
    if (j == 0) moments[2 * f.cols] = rows;
  }
};

// Merges the statistics of the rows of all replicas, as kernels/cpu/batch_norm.cpp does.
template <typename X>
__global__ void merge_moments_kernel(Features<X> f, const double* moments, std::size_t replicas) {
  const std::size_t stride = 2 * f.cols + 1;
  for (std::size_t j = global_thread(); j < f.cols; j += num_global_threads()) {
    double rows = 0;
    double mean = 0;
    double squares = 0;
    for (std::size_t r = 0; r < replicas; ++r) rows += moments[r * stride + 2 * f.cols];
    for (std::size_t r = 0; r < replicas; ++r) {
      const double* const m = moments + r * stride;
      mean += m[2 * f.cols] / rows * m[j];
    }
    for (std::size_t r = 0; r < replicas; ++r) {
      const double* const m = moments + r * stride;
      const double apart = m[j] - mean;
      squares += m[f.cols + j] + m[2 * f.cols] * apart * apart;
    }
    f.set(j, mean, squares / rows, rows);
  }
}

template <typename X>
__global__ void running_statistics_kernel(Features<X> f) {
  using T = ArithmeticOf<X>;
  for (std::size_t j = global_thread(); j < f.cols; j += num_global_threads()) {
    f.mean[j] = f.running_mean[j];
    f.inverse_std[j] = static_cast<T>(1 / sqrt(static_cast<double>(f.running_var[j]) + f.epsilon));
  }
}

template <typename X>
__global__ void normalise_kernel(Features<X> f) {
  using T = ArithmeticOf<X>;
  for_matrix(f.rows, f.cols, [&](std::size_t row, std::size_t j) {
    const T factor = f.inverse_std[j] * (f.weight ? f.weight[j] : T(1));
    const T bias = f.bias ? f.bias[j] : T(0);
    f.y[row][j] = static_cast<X>((number(f.x[row][j]) - f.mean[j]) * factor + bias);
  });
}

template <typename X>
struct Gradients {
  using T = ArithmeticOf<X>;
  Rows<const X> x;
  Rows<const X> grad_y;
  Rows<X> grad_x;  // or nullptr
  const T* weight;
  const T* mean;
  const T* inverse_std;
  T* grad_weight;     // or nullptr
  T* grad_bias;       // or nullptr
  double* grad_sums;  // [features] each: from the first launch to the second
  double* projections;
  const double* count;  // rows of all replicas; nullptr: those of x
};

// For each feature, the sums over the batch of grad_y and of grad_y * (x - mean) * inverse_std.
template <typename X>
struct BackwardSums {
  using T = ArithmeticOf<X>;
  static constexpr int kValues = 2;
  Gradients<X> g;
  double* count = nullptr;  // gets the number of rows, if given
  std::size_t rows = 0;

  __device__ void add(std::size_t row, std::size_t j, double (&total)[2]) const {
    const double grad = static_cast<double>(number(g.grad_y[row][j]));
    total[0] += grad;
    total[1] += grad * (static_cast<double>(number(g.x[row][j])) - static_cast<double>(g.mean[j]));
  }
  __device__ void finish(std::size_t j, const double (&totals)[2]) const {
    const double projection = totals[1] * static_cast<double>(g.inverse_std[j]);
    if (g.grad_weight) g.grad_weight[j] = static_cast<T>(projection);
    if (g.grad_bias) g.grad_bias[j] = static_cast<T>(totals[0]);
    g.grad_sums[j] = totals[0];
    g.projections[j] = projection;
    if (count && j == 0) *count = static_cast<double>(rows);
  }
};

// grad_x = factor * (grad_y - offset - (x - mean) * slope). The last two terms are the paths
// through the mean and the variance, and are absent if those were given.
template <typename X>
__global__ void input_gradient_kernel(Gradients<X> g, std::size_t rows, std::size_t cols,
                                      Statistics statistics) {
  using T = ArithmeticOf<X>;
  // One division for all, because on most GPUs a division in double costs more than reading the
  // elements.
  const double share = 1 / (g.count ? *g.count : static_cast<double>(rows));
  for_matrix(rows, cols, [&](std::size_t row, std::size_t j) {
    const T s = g.inverse_std[j];
    const T factor = s * (g.weight ? g.weight[j] : T(1));
    T grad = number(g.grad_y[row][j]);
    if (statistics != Statistics::running) {
      const T offset = static_cast<T>(g.grad_sums[j] * share);
      const T slope = static_cast<T>(static_cast<double>(s) * g.projections[j] * share);
      grad = grad - offset - (number(g.x[row][j]) - g.mean[j]) * slope;
    }
    g.grad_x[row][j] = static_cast<X>(factor * grad);
  });
}

template <typename X>
Features<X> features_of(const BatchNormForward& call) {
  using T = ArithmeticOf<X>;
  return {rows_of<X>(call.x),
          rows_of<X>(call.y),
          call.x.rows,
          call.x.cols,
          data_of<T>(call.weight),
          data_of<T>(call.bias),
          data_of<T>(call.mean),
          data_of<T>(call.inverse_std),
          data_of<T>(call.running_mean),
          data_of<T>(call.running_var),
          call.momentum,
          call.epsilon};
}

// The gradients of the features from `first` on, and the place for their sums.
template <typename X>
Gradients<X> gradients_of(const BatchNormBackward& call, std::size_t first, double* grad_sums,
                          double* projections, const double* count) {
  const auto from_first = [first](auto* data) { return data ? data + first : data; };
  const auto at_first = [&](const auto& view) {
    return from_first(data_of<ArithmeticOf<X>>(view));
  };
  return {{from_first(data_of<X>(call.x)), call.x.leading_dimension},
          {from_first(data_of<X>(call.grad_y)), call.grad_y.leading_dimension},
          {from_first(data_of<X>(call.grad_x)), call.grad_x.leading_dimension},
          at_first(call.weight),
          at_first(call.mean),
          at_first(call.inverse_std),
          at_first(call.grad_weight),
          at_first(call.grad_bias),
          grad_sums,
          projections,
          count};
}

}  // namespace

void CudaBackend::batch_norm_forward(Stream& stream, const BatchNormForward& call) {
  const auto* name = "batch_norm";
  const std::size_t rows = call.x.rows;
  const std::size_t cols = call.x.cols;
  if (cols == 0) return;
  for_activations(call.x.dtype, name, [&]<typename X>() {
    const Features<X> features = features_of<X>(call);
    switch (call.statistics) {
      case Statistics::batch:
        launch_column_reduce(stream, name, rows, cols, BatchStatistics<X>{features});
        break;
      case Statistics::running:
        launch(stream, name, covering(cols, kThreads), running_statistics_kernel<X>, features);
        break;
      case Statistics::shared:
        launch(stream, name, covering(cols, kThreads), merge_moments_kernel<X>, features,
               data_of<double>(call.moments), call.moments.num_elements / (2 * cols + 1));
        break;
    }
    if (rows > 0) launch(stream, name, row_tiles(rows, cols), normalise_kernel<X>, features);
  });
}

void CudaBackend::batch_norm_backward(Stream& stream, const BatchNormBackward& call) {
  const auto* name = "batch_norm backward";
  const std::size_t rows = call.x.rows;
  const std::size_t cols = call.x.cols;
  for_activations(call.x.dtype, name, [&]<typename X>() {
    if (call.statistics == Statistics::shared) {
      double* const sums = data_of<double>(call.sums);
      if (rows == 0 || cols == 0) return;
      launch(stream, name, row_tiles(rows, cols), input_gradient_kernel<X>,
             gradients_of<X>(call, 0, sums, sums + cols, sums + 2 * cols), rows, cols,
             call.statistics);
      return;
    }
    for (std::size_t first = 0; first < cols; first += kMaxColumns) {
      const std::size_t count = std::min(kMaxColumns, cols - first);
      double* const sums = workspace_of(stream).column_sums;
      const Gradients<X> gradients = gradients_of<X>(call, first, sums, sums + count, nullptr);
      launch_column_reduce(stream, name, rows, count, BackwardSums<X>{gradients});
      if (!call.grad_x.data || rows == 0) continue;
      launch(stream, name, row_tiles(rows, count), input_gradient_kernel<X>, gradients, rows, count,
             call.statistics);
    }
  });
}

void CudaBackend::batch_moments(Stream& stream, const kernels::BatchMoments& call) {
  const auto* name = "batch_moments";
  for_activations(call.x.dtype, name, [&]<typename X>() {
    kernels::BatchNormForward of_input;
    of_input.x = call.x;
    const Features<X> features = features_of<X>(of_input);
    launch_column_reduce(stream, name, call.x.rows, call.x.cols,
                         BatchMoments<X>{{features}, data_of<double>(call.moments)});
  });
}

void CudaBackend::batch_norm_sums(Stream& stream, const BatchNormSums& call) {
  const auto* name = "batch_norm_sums";
  const std::size_t cols = call.x.cols;
  double* const sums = data_of<double>(call.sums);
  for_activations(call.x.dtype, name, [&]<typename X>() {
    const Gradients<X> gradients = gradients_of<X>(call, 0, sums, sums + cols, nullptr);
    launch_column_reduce(stream, name, call.x.rows, cols,
                         BackwardSums<X>{gradients, sums + 2 * cols, call.x.rows});
  });
}

}  // namespace lockstep::kernels::cuda
