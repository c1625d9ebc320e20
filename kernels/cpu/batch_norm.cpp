// Batch normalisation over the rows of a matrix. Sums over the batch are formed in double, one
// range of features per thread and row by row, so their order depends on nothing but the rows.
#include <cmath>

#include "kernels/cpu/eigen_backend.h"
#include "kernels/cpu/parallel.h"

namespace lockstep::kernels {
namespace {

using Statistics = BatchNormForward::Statistics;

constexpr std::size_t kFeatures = 128;  // features whose sums one task keeps

// Calls body(begin, end) for all ranges of at most kFeatures features.
template <typename Body>
void for_features(Stream& stream, const ConstMatrixView& x, const Body& body) {
  parallel_blocks(stream, x.cols, kFeatures, x.rows,
                  [&](std::size_t, std::size_t begin, std::size_t end) { body(begin, end); });
}

// Mean of features begin ... end - 1 and their sum of squared deviations from it, in two passes.
// Both are 0 for no rows.
template <typename T>
void batch_statistics(const ConstMatrixView& x, std::size_t begin, std::size_t end, double* mean,
                      double* squares) {
  const std::size_t width = end - begin;
  const double rows = static_cast<double>(x.rows);
  std::fill(mean, mean + width, 0.0);
  std::fill(squares, squares + width, 0.0);
  if (x.rows == 0) return;
  for (std::size_t i = 0; i < x.rows; ++i) {
    const T* row = row_of<T>(x, i) + begin;
    for (std::size_t j = 0; j < width; ++j) mean[j] += static_cast<double>(row[j]);
  }
  for (std::size_t j = 0; j < width; ++j) mean[j] /= rows;
  for (std::size_t i = 0; i < x.rows; ++i) {
    const T* row = row_of<T>(x, i) + begin;
    for (std::size_t j = 0; j < width; ++j) {
      const double difference = static_cast<double>(row[j]) - mean[j];
      squares[j] += difference * difference;
    }
  }
}

// The same of the rows of all replicas, from their moments; returns how many rows they have.
// Source: Chan, Golub, LeVeque, "Updating formulae and a pairwise algorithm for computing sample
// variances", 1979.
double merge_moments(const ConstTensorView& moments, std::size_t features, std::size_t begin,
                     std::size_t end, double* mean, double* squares) {
  const std::size_t stride = 2 * features + 1;
  const std::size_t width = end - begin;
  const double* const first = data_of<double>(moments);
  const double* const last = first + moments.num_elements;
  double rows = 0;
  for (const double* m = first; m != last; m += stride) rows += m[2 * features];
  std::fill(mean, mean + width, 0.0);
  std::fill(squares, squares + width, 0.0);
  for (const double* m = first; m != last; m += stride) {
    for (std::size_t j = 0; j < width; ++j) mean[j] += m[2 * features] / rows * m[begin + j];
  }
  for (const double* m = first; m != last; m += stride) {
    for (std::size_t j = 0; j < width; ++j) {
      const double apart = m[begin + j] - mean[j];
      squares[j] += m[features + begin + j] + m[2 * features] * apart * apart;
    }
  }
  return rows;
}

// Sets mean and inverse_std of the features, and moves the running statistics.
template <typename T>
void prepare_features(const BatchNormForward& call, std::size_t begin, std::size_t end) {
  T* mean = data_of<T>(call.mean);
  T* inverse_std = data_of<T>(call.inverse_std);
  T* running_mean = data_of<T>(call.running_mean);
  T* running_var = data_of<T>(call.running_var);
  if (call.statistics == Statistics::running) {
    for (std::size_t j = begin; j < end; ++j) {
      mean[j] = running_mean[j];
      inverse_std[j] =
          static_cast<T>(1 / std::sqrt(static_cast<double>(running_var[j]) + call.epsilon));
    }
    return;
  }
  double means[kFeatures];
  double squares[kFeatures];
  double rows = static_cast<double>(call.x.rows);
  if (call.statistics == Statistics::shared) {
    rows = merge_moments(call.moments, call.x.cols, begin, end, means, squares);
  } else {
    batch_statistics<T>(call.x, begin, end, means, squares);
  }
  const double keep = 1 - call.momentum;
  for (std::size_t j = begin; j < end; ++j) {
    const double m = means[j - begin];
    const double v = squares[j - begin] / rows;
    mean[j] = static_cast<T>(m);
    inverse_std[j] = static_cast<T>(1 / std::sqrt(v + call.epsilon));
    if (running_mean) running_mean[j] = static_cast<T>(keep * running_mean[j] + call.momentum * m);
    if (running_var) {
      running_var[j] =
          static_cast<T>(keep * running_var[j] + call.momentum * v * rows / (rows - 1));
    }
  }
}

template <typename T>
void normalise(const BatchNormForward& call, std::size_t begin, std::size_t end) {
  const T* mean = data_of<T>(call.mean);
  const T* inverse_std = data_of<T>(call.inverse_std);
  const T* weight = data_of<T>(call.weight);
  const T* bias = data_of<T>(call.bias);
  T factor[kFeatures];
  T shift[kFeatures];
  for (std::size_t j = begin; j < end; ++j) {
    factor[j - begin] = inverse_std[j] * (weight ? weight[j] : T(1));
    shift[j - begin] = bias ? bias[j] : T(0);
  }
  const std::size_t width = end - begin;
  for (std::size_t i = 0; i < call.x.rows; ++i) {
    const T* x = row_of<T>(call.x, i) + begin;
    T* y = row_of<T>(call.y, i) + begin;
    for (std::size_t j = 0; j < width; ++j) y[j] = (x[j] - mean[begin + j]) * factor[j] + shift[j];
  }
}

// Sums over the batch of grad_y and of grad_y * (x - mean) * inverse_std.
template <typename T>
void backward_sums(const BatchNormBackward& call, std::size_t begin, std::size_t end,
                   double* grad_sum, double* projection) {
  const T* mean = data_of<T>(call.mean);
  const T* inverse_std = data_of<T>(call.inverse_std);
  const std::size_t width = end - begin;
  std::fill(grad_sum, grad_sum + width, 0.0);
  std::fill(projection, projection + width, 0.0);
  for (std::size_t i = 0; i < call.x.rows; ++i) {
    const T* x = row_of<T>(call.x, i) + begin;
    const T* grad = row_of<T>(call.grad_y, i) + begin;
    for (std::size_t j = 0; j < width; ++j) {
      const double g = static_cast<double>(grad[j]);
      grad_sum[j] += g;
      projection[j] += g * (static_cast<double>(x[j]) - static_cast<double>(mean[begin + j]));
    }
  }
  for (std::size_t j = 0; j < width; ++j)
    projection[j] *= static_cast<double>(inverse_std[begin + j]);
}

template <typename T>
void write_parameter_gradients(const BatchNormBackward& call, std::size_t begin, std::size_t end,
                               const double* grad_sum, const double* projection) {
  for (std::size_t j = begin; j < end; ++j) {
    if (call.grad_weight.data)
      data_of<T>(call.grad_weight)[j] = static_cast<T>(projection[j - begin]);
    if (call.grad_bias.data) data_of<T>(call.grad_bias)[j] = static_cast<T>(grad_sum[j - begin]);
  }
}

// grad_x = factor * (grad_y - offset - (x - mean) * slope); the last two terms are the paths
// through the mean and the variance, absent where those were given.
template <typename T>
void write_input_gradient(const BatchNormBackward& call, std::size_t begin, std::size_t end,
                          const double* grad_sum, const double* projection, double rows) {
  const T* mean = data_of<T>(call.mean);
  const T* inverse_std = data_of<T>(call.inverse_std);
  const T* weight = data_of<T>(call.weight);
  const bool through_batch = call.statistics != Statistics::running;
  const std::size_t width = end - begin;
  T factor[kFeatures];
  T offset[kFeatures];
  T slope[kFeatures];
  for (std::size_t j = 0; j < width; ++j) {
    const T s = inverse_std[begin + j];
    factor[j] = s * (weight ? weight[begin + j] : T(1));
    offset[j] = through_batch ? static_cast<T>(grad_sum[j] / rows) : T(0);
    slope[j] = through_batch ? static_cast<T>(static_cast<double>(s) * projection[j] / rows) : T(0);
  }
  for (std::size_t i = 0; i < call.x.rows; ++i) {
    const T* x = row_of<T>(call.x, i) + begin;
    const T* grad = row_of<T>(call.grad_y, i) + begin;
    T* out = row_of<T>(call.grad_x, i) + begin;
    for (std::size_t j = 0; j < width; ++j) {
      out[j] = factor[j] * (grad[j] - offset[j] - (x[j] - mean[begin + j]) * slope[j]);
    }
  }
}

template <typename T>
void backward_features(const BatchNormBackward& call, std::size_t begin, std::size_t end) {
  if (call.statistics == Statistics::shared) {
    const double* const sums = data_of<double>(call.sums);
    const std::size_t features = call.x.cols;
    return write_input_gradient<T>(call, begin, end, sums + begin, sums + features + begin,
                                   sums[2 * features]);
  }
  double grad_sum[kFeatures];
  double projection[kFeatures];
  backward_sums<T>(call, begin, end, grad_sum, projection);
  write_parameter_gradients<T>(call, begin, end, grad_sum, projection);
  if (!call.grad_x.data) return;
  write_input_gradient<T>(call, begin, end, grad_sum, projection, static_cast<double>(call.x.rows));
}

}  // namespace

void EigenBackend::batch_norm_forward(Stream& stream, const BatchNormForward& call) {
  for_floating(call.x.dtype, "batch_norm", [&]<typename T>() {
    for_features(stream, call.x, [&](std::size_t begin, std::size_t end) {
      prepare_features<T>(call, begin, end);
      normalise<T>(call, begin, end);
    });
  });
}

void EigenBackend::batch_norm_backward(Stream& stream, const BatchNormBackward& call) {
  for_floating(call.x.dtype, "batch_norm backward", [&]<typename T>() {
    for_features(stream, call.x, [&](std::size_t begin, std::size_t end) {
      backward_features<T>(call, begin, end);
    });
  });
}

void EigenBackend::batch_moments(Stream& stream, ConstMatrixView x, TensorView moments) {
  double* const to = data_of<double>(moments);
  to[2 * x.cols] = static_cast<double>(x.rows);
  for_floating(x.dtype, "batch_moments", [&]<typename T>() {
    for_features(stream, x, [&](std::size_t begin, std::size_t end) {
      batch_statistics<T>(x, begin, end, to + begin, to + x.cols + begin);
    });
  });
}

void EigenBackend::batch_norm_sums(Stream& stream, const BatchNormBackward& call) {
  double* const to = data_of<double>(call.sums);
  const std::size_t features = call.x.cols;
  to[2 * features] = static_cast<double>(call.x.rows);
  for_floating(call.x.dtype, "batch_norm_sums", [&]<typename T>() {
    for_features(stream, call.x, [&](std::size_t begin, std::size_t end) {
      double* const grad_sum = to + begin;
      double* const projection = to + features + begin;
      backward_sums<T>(call, begin, end, grad_sum, projection);
      write_parameter_gradients<T>(call, begin, end, grad_sum, projection);
    });
  });
}

}  // namespace lockstep::kernels
