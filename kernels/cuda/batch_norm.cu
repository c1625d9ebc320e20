// Batch normalisation. Forward takes two launches: the statistics of each feature (reads x once),
// then y (reads x and writes y once). Backward takes two for up to 4096 features: sums over the
// batch (reads x and grad_y once), then grad_x (reads x and grad_y once, writes grad_x once).
#include <algorithm>
#include <cmath>
#include <initializer_list>

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

// --- kernels that write a matrix: each thread keeps kWide columns, so that it reads and computes
// what belongs to them once, and goes through rows

template <std::size_t kWide>
__device__ std::size_t first_column() {
  return (std::size_t{blockIdx.x} * blockDim.x + threadIdx.x) * kWide;
}

template <std::size_t kWide, typename T>
__device__ Vector<T, kWide> values_at(std::size_t column, const T* values, T otherwise) {
  if (values) return load_vector<kWide>(values + column);
  Vector<T, kWide> result;
  for (T& value : result.at) value = otherwise;
  return result;
}

// y = result(i, inputs...) in the thread's columns, of which i counts; y may be one of the inputs.
template <std::size_t kWide, typename X, typename Result, typename... Inputs>
__device__ void map_rows(std::size_t rows, const Rows<X>& y, const Result& result,
                         const Inputs&... inputs) {
  const std::size_t column = first_column<kWide>();
  const std::size_t step = std::size_t{gridDim.y} * blockDim.y;
  std::size_t row = std::size_t{blockIdx.y} * blockDim.y + threadIdx.y;
  for (; row < rows; row += step) {
    store_vector(y[row] + column,
                 mapped<X, kWide>(result, load_vector<kWide>(inputs[row] + column)...));
  }
}

// Calls start.operator()<kWide>(shape), in pieces of 16 bytes if all rows and values are aligned
// for it. Few blocks, so that threads have several rows.
template <typename X, typename Start, typename... Values>
void for_column_pieces(std::size_t rows, std::size_t cols, const Start& start,
                       std::initializer_list<Rows<const X>> matrices, const Values*... values) {
  constexpr std::size_t kWide = kWidth<X>;
  bool is_wide = cols % kWide == 0 && (... && is_aligned(values, kWide * sizeof(Values)));
  for (const auto& matrix : matrices) {
    is_wide = is_wide && is_aligned(matrix.data) && matrix.leading_dimension % kWide == 0;
  }
  const std::size_t pieces = is_wide ? cols / kWide : cols;
  const auto across = static_cast<unsigned>(std::min<std::size_t>(pieces, kThreads));
  const unsigned down = kThreads / across;
  const std::size_t stripes = (pieces + across - 1) / across;
  const std::size_t blocks = std::clamp<std::size_t>((rows + down - 1) / down, 1,
                                                     std::max<std::size_t>(1, 1024 / stripes));
  const LaunchShape shape{dim3(static_cast<unsigned>(stripes), static_cast<unsigned>(blocks)),
                          dim3(across, down)};
  if (is_wide) return start.template operator()<kWide>(shape);
  start.template operator()<1>(shape);
}

template <std::size_t kWide, typename X>
__global__ void __launch_bounds__(kThreads) normalise_kernel(Features<X> f) {
  using T = ArithmeticOf<X>;
  const std::size_t column = first_column<kWide>();
  if (column >= f.cols) return;
  const auto mean = load_vector<kWide>(f.mean + column);
  const auto bias = values_at<kWide>(column, f.bias, T(0));
  auto factor = values_at<kWide>(column, f.weight, T(1));
  const auto inverse_std = load_vector<kWide>(f.inverse_std + column);
  for (std::size_t i = 0; i < kWide; ++i) factor.at[i] *= inverse_std.at[i];
  map_rows<kWide>(
      f.rows, f.y, [&](std::size_t i, T x) { return (x - mean.at[i]) * factor.at[i] + bias.at[i]; },
      f.x);
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
template <std::size_t kWide, typename X>
__global__ void __launch_bounds__(kThreads)
    input_gradient_kernel(Gradients<X> g, std::size_t rows, std::size_t cols,
                          Statistics statistics) {
  using T = ArithmeticOf<X>;
  const std::size_t column = first_column<kWide>();
  if (column >= cols) return;
  auto factor = values_at<kWide>(column, g.weight, T(1));
  const auto inverse_std = load_vector<kWide>(g.inverse_std + column);
  for (std::size_t i = 0; i < kWide; ++i) factor.at[i] *= inverse_std.at[i];
  if (statistics == Statistics::running) {
    return map_rows<kWide>(
        rows, g.grad_x, [&](std::size_t i, T grad) { return factor.at[i] * grad; }, g.grad_y);
  }
  const auto mean = load_vector<kWide>(g.mean + column);
  // One division for all, because on most GPUs a division in double costs more than reading the
  // elements.
  const double share = 1 / (g.count ? *g.count : static_cast<double>(rows));
  Vector<T, kWide> offset, slope;
  for (std::size_t i = 0; i < kWide; ++i) {
    offset.at[i] = static_cast<T>(g.grad_sums[column + i] * share);
    slope.at[i] =
        static_cast<T>(static_cast<double>(inverse_std.at[i]) * g.projections[column + i] * share);
  }
  map_rows<kWide>(
      rows, g.grad_x,
      [&](std::size_t i, T grad, T x) {
        return factor.at[i] * (grad - offset.at[i] - (x - mean.at[i]) * slope.at[i]);
      },
      g.grad_y, g.x);
}

template <typename X>
void input_gradient(Stream& stream, const char* name, const Gradients<X>& g, std::size_t rows,
                    std::size_t cols, Statistics statistics) {
  const auto start = [&]<std::size_t kWide>(const LaunchShape& shape) {
    launch(stream, name, shape, input_gradient_kernel<kWide, X>, g, rows, cols, statistics);
  };
  for_column_pieces<X>(rows, cols, start,
                       {g.x, g.grad_y, {g.grad_x.data, g.grad_x.leading_dimension}}, g.weight,
                       g.mean, g.inverse_std);
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
    if (rows == 0) return;
    const auto normalise = [&]<std::size_t kWide>(const LaunchShape& shape) {
      launch(stream, name, shape, normalise_kernel<kWide, X>, features);
    };
    for_column_pieces<X>(rows, cols, normalise,
                         {features.x, {features.y.data, features.y.leading_dimension}},
                         features.weight, features.bias, features.mean, features.inverse_std);
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
      input_gradient(stream, name, gradients_of<X>(call, 0, sums, sums + cols, sums + 2 * cols),
                     rows, cols, call.statistics);
      return;
    }
    for (std::size_t first = 0; first < cols; first += kMaxColumns) {
      const std::size_t count = std::min(kMaxColumns, cols - first);
      double* const sums = workspace_of(stream).column_sums;
      const Gradients<X> gradients = gradients_of<X>(call, first, sums, sums + count, nullptr);
      launch_column_reduce(stream, name, rows, count, BackwardSums<X>{gradients});
      if (!call.grad_x.data || rows == 0) continue;
      input_gradient(stream, name, gradients, rows, count, call.statistics);
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
