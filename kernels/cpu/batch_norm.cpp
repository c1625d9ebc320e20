// Batch normalisation over the rows of a matrix. Sums over the batch are formed in double, over
// blocks of rows whose size does not depend on the threads, and are added in order: the bits depend
// only on the rows.
#include <cmath>

#include "kernels/cpu/eigen_backend.h"
#include "kernels/cpu/parallel.h"
#include "kernels/norm_calls.h"

namespace lockstep::kernels {
namespace {

constexpr std::size_t kRowsPerBlock = 512;

// `count` sums over all rows: add(row, sums) adds a row to them.
template <typename Add>
std::vector<double> sums_of_rows(Stream& stream, const ConstMatrixView& x, std::size_t count,
                                 const Add& add) {
  const std::size_t num_blocks = (x.rows + kRowsPerBlock - 1) / kRowsPerBlock;
  std::vector<double> partials(num_blocks * count);
  parallel_blocks(stream, x.rows, kRowsPerBlock, x.cols,
                  [&](std::size_t block, std::size_t begin, std::size_t end) {
                    for (std::size_t i = begin; i < end; ++i)
                      add(i, partials.data() + block * count);
                  });
  std::vector<double> sums(count);
  for (std::size_t block = 0; block < num_blocks; ++block) {
    for (std::size_t j = 0; j < count; ++j) sums[j] += partials[block * count + j];
  }
  return sums;
}

// The statistics with which each feature is normalised.
struct BatchStatistics {
  double rows = 0;
  std::vector<double> mean;     // indexed by feature
  std::vector<double> squares;  // the sum of squared deviations from it
};

// Takes two passes. The mean of no rows is NaN.
template <typename T>
BatchStatistics batch_statistics(Stream& stream, const ConstMatrixView& x) {
  const double rows = static_cast<double>(x.rows);
  std::vector<double> mean = sums_of_rows(stream, x, x.cols, [&](std::size_t i, double* sums) {
    const T* row = row_of<T>(x, i);
    for (std::size_t j = 0; j < x.cols; ++j) sums[j] += static_cast<double>(row[j]);
  });
  for (double& value : mean) value /= rows;
  std::vector<double> squares = sums_of_rows(stream, x, x.cols, [&](std::size_t i, double* sums) {
    const T* row = row_of<T>(x, i);
    for (std::size_t j = 0; j < x.cols; ++j) {
      const double difference = static_cast<double>(row[j]) - mean[j];
      sums[j] += difference * difference;
    }
  });
  return {rows, std::move(mean), std::move(squares)};
}

// The same for the rows of all replicas, from their moments.
// Source: Chan, Golub, LeVeque, "Updating formulae and a pairwise algorithm for computing sample
// variances", 1979.
BatchStatistics merge_moments(const ConstTensorView& moments, std::size_t features) {
  const std::size_t stride = 2 * features + 1;
  const double* const first = data_of<double>(moments);
  const double* const last = first + moments.num_elements;
  BatchStatistics all{0, std::vector<double>(features), std::vector<double>(features)};
  for (const double* m = first; m != last; m += stride) all.rows += m[2 * features];
  for (const double* m = first; m != last; m += stride) {
    for (std::size_t j = 0; j < features; ++j) all.mean[j] += m[2 * features] / all.rows * m[j];
  }
  for (const double* m = first; m != last; m += stride) {
    for (std::size_t j = 0; j < features; ++j) {
      const double apart = m[j] - all.mean[j];
      all.squares[j] += m[features + j] + m[2 * features] * apart * apart;
    }
  }
  return all;
}

// Sets mean and inverse_std of the features, and moves the running statistics.
template <typename T>
void prepare_features(Stream& stream, const BatchNormForward& call) {
  T* mean = data_of<T>(call.mean);
  T* inverse_std = data_of<T>(call.inverse_std);
  T* running_mean = data_of<T>(call.running_mean);
  T* running_var = data_of<T>(call.running_var);
  if (call.statistics == Statistics::running) {
    for (std::size_t j = 0; j < call.x.cols; ++j) {
      mean[j] = running_mean[j];
      inverse_std[j] =
          static_cast<T>(1 / std::sqrt(static_cast<double>(running_var[j]) + call.epsilon));
    }
    return;
  }
  const BatchStatistics batch = call.statistics == Statistics::shared
                                    ? merge_moments(call.moments, call.x.cols)
                                    : batch_statistics<T>(stream, call.x);
  const double rows = batch.rows;
  const double keep = 1 - call.momentum;
  for (std::size_t j = 0; j < call.x.cols; ++j) {
    const double m = batch.mean[j];
    const double v = batch.squares[j] / rows;
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
void normalise(Stream& stream, const BatchNormForward& call) {
  const std::size_t cols = call.x.cols;
  const T* mean = data_of<T>(call.mean);
  const T* weight = data_of<T>(call.weight);
  const T* bias = data_of<T>(call.bias);
  std::vector<T> factor(data_of<T>(call.inverse_std), data_of<T>(call.inverse_std) + cols);
  std::vector<T> shift(cols);
  for (std::size_t j = 0; j < cols; ++j) {
    factor[j] *= weight ? weight[j] : T(1);
    shift[j] = bias ? bias[j] : T(0);
  }
  parallel_rows(stream, call.x.rows, cols, [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      const T* x = row_of<T>(call.x, i);
      T* y = row_of<T>(call.y, i);
      LOCKSTEP_INDEPENDENT
      for (std::size_t j = 0; j < cols; ++j) y[j] = (x[j] - mean[j]) * factor[j] + shift[j];
    }
  });
}

// Sums over the batch of grad_y, then of grad_y * (x - mean) * inverse_std, which are the gradients
// of bias and weight.
template <typename T>
std::vector<double> backward_sums(Stream& stream, const BatchNormBackward& call) {
  const std::size_t cols = call.x.cols;
  const T* mean = data_of<T>(call.mean);
  const T* inverse_std = data_of<T>(call.inverse_std);
  std::vector<double> sums =
      sums_of_rows(stream, call.x, 2 * cols, [&](std::size_t i, double* partial) {
        const T* x = row_of<T>(call.x, i);
        const T* grad = row_of<T>(call.grad_y, i);
        for (std::size_t j = 0; j < cols; ++j) {
          const double g = static_cast<double>(grad[j]);
          partial[j] += g;
          partial[cols + j] += g * (static_cast<double>(x[j]) - static_cast<double>(mean[j]));
        }
      });
  for (std::size_t j = 0; j < cols; ++j) {
    sums[cols + j] *= static_cast<double>(inverse_std[j]);
    if (call.grad_bias.data) data_of<T>(call.grad_bias)[j] = static_cast<T>(sums[j]);
    if (call.grad_weight.data) data_of<T>(call.grad_weight)[j] = static_cast<T>(sums[cols + j]);
  }
  return sums;
}

// grad_x = factor * (grad_y - offset - (x - mean) * slope). The last two terms are the paths
// through the mean and the variance, and are absent if those were given.
template <typename T>
void write_input_gradient(Stream& stream, const BatchNormBackward& call, const double* sums,
                          double rows) {
  const std::size_t cols = call.x.cols;
  const T* mean = data_of<T>(call.mean);
  const T* inverse_std = data_of<T>(call.inverse_std);
  const T* weight = data_of<T>(call.weight);
  const bool through_batch = call.statistics != Statistics::running;
  std::vector<T> factor(cols);
  std::vector<T> offset(cols);
  std::vector<T> slope(cols);
  for (std::size_t j = 0; j < cols; ++j) {
    const T s = inverse_std[j];
    factor[j] = s * (weight ? weight[j] : T(1));
    if (!through_batch) continue;
    offset[j] = static_cast<T>(sums[j] / rows);
    slope[j] = static_cast<T>(static_cast<double>(s) * sums[cols + j] / rows);
  }
  parallel_rows(stream, call.x.rows, cols, [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      const T* x = row_of<T>(call.x, i);
      const T* grad = row_of<T>(call.grad_y, i);
      T* out = row_of<T>(call.grad_x, i);
      LOCKSTEP_INDEPENDENT
      for (std::size_t j = 0; j < cols; ++j) {
        out[j] = factor[j] * (grad[j] - offset[j] - (x[j] - mean[j]) * slope[j]);
      }
    }
  });
}

}  // namespace

void EigenBackend::batch_norm_forward(Stream& stream, const BatchNormForward& call) {
  for_floating(call.x.dtype, "batch_norm", [&]<typename T>() {
    prepare_features<T>(stream, call);
    normalise<T>(stream, call);
  });
}

void EigenBackend::batch_norm_backward(Stream& stream, const BatchNormBackward& call) {
  for_floating(call.x.dtype, "batch_norm backward", [&]<typename T>() {
    if (call.statistics == Statistics::shared) {
      const double* const sums = data_of<double>(call.sums);
      return write_input_gradient<T>(stream, call, sums, sums[2 * call.x.cols]);
    }
    const std::vector<double> sums = backward_sums<T>(stream, call);
    if (!call.grad_x.data) return;
    write_input_gradient<T>(stream, call, sums.data(), static_cast<double>(call.x.rows));
  });
}

void EigenBackend::batch_moments(Stream& stream, const BatchMoments& call) {
  for_floating(call.x.dtype, "batch_moments", [&]<typename T>() {
    double* const to = data_of<double>(call.moments);
    if (call.x.rows == 0) return std::fill(to, to + call.moments.num_elements, 0.0);
    const BatchStatistics own = batch_statistics<T>(stream, call.x);
    std::copy(own.mean.begin(), own.mean.end(), to);
    std::copy(own.squares.begin(), own.squares.end(), to + call.x.cols);
    to[2 * call.x.cols] = own.rows;
  });
}

void EigenBackend::batch_norm_sums(Stream& stream, const BatchNormSums& call) {
  for_floating(call.x.dtype, "batch_norm_sums", [&]<typename T>() {
    const std::vector<double> sums = backward_sums<T>(stream, call);
    double* const to = data_of<double>(call.sums);
    std::copy(sums.begin(), sums.end(), to);
    to[2 * call.x.cols] = static_cast<double>(call.x.rows);
  });
}

}  // namespace lockstep::kernels
