// Batch normalisation, backward, in two launches for up to 4096 features: sums over the batch (x
// and grad_y once in), then grad_x (x and grad_y once in, grad_x once out).
#include <algorithm>

#include "kernels/cuda/checks.h"
#include "kernels/cuda/column_map.cuh"
#include "kernels/cuda/column_reduce.cuh"
#include "kernels/cuda/cuda_backend.h"

namespace lockstep::kernels::cuda {
namespace {

// What both launches read.
template <typename T>
struct BackwardInputs {
  const T* x;
  std::size_t x_leading_dimension;
  const T* grad_y;
  std::size_t grad_leading_dimension;
  const T* mean;
  const T* inverse_std;

  __device__ T x_at(std::size_t row, std::size_t j) const {
    return x[row * x_leading_dimension + j];
  }
  __device__ T grad_at(std::size_t row, std::size_t j) const {
    return grad_y[row * grad_leading_dimension + j];
  }
};

// For each feature, the sums over the batch of grad_y and of grad_y * (x - mean) * inverse_std.
template <typename T>
struct BackwardSums {
  static constexpr int kValues = 2;
  BackwardInputs<T> in;
  T* grad_weight;  // or nullptr
  T* grad_bias;    // or nullptr
  double* sums;    // [2 * features]: for the second launch

  __device__ void add(std::size_t row, std::size_t j, double (&total)[2]) const {
    const double grad = static_cast<double>(in.grad_at(row, j));
    const double value = static_cast<double>(in.x_at(row, j));
    total[0] += grad;
    total[1] += grad * (value - static_cast<double>(in.mean[j]));
  }
  __device__ void finish(std::size_t j, const double (&totals)[2]) const {
    const double projection = totals[1] * static_cast<double>(in.inverse_std[j]);
    if (grad_weight) grad_weight[j] = static_cast<T>(projection);
    if (grad_bias) grad_bias[j] = static_cast<T>(totals[0]);
    sums[2 * j] = totals[0];
    sums[2 * j + 1] = projection;
  }
};

// grad_x = factor * (grad_y - offset - (x - mean) * slope); the last two terms are the paths
// through the mean and the variance, absent where those were given.
template <typename T>
struct InputGradient {
  BackwardInputs<T> in;
  const T* weight;     // or nullptr: ones
  const double* sums;  // of BackwardSums; nullptr where mean and variance were given
  double rows;
  T* grad_x;
  std::size_t grad_x_leading_dimension;

  struct Column {
    T mean;
    T factor;
    T offset;
    T slope;
  };
  struct Values {
    T x;
    T grad;
  };
  __device__ Column column(std::size_t j) const {
    const T s = in.inverse_std[j];
    const T factor = s * (weight ? weight[j] : T(1));
    if (!sums) return {in.mean[j], factor, T(0), T(0)};
    return {in.mean[j], factor, static_cast<T>(sums[2 * j] / rows),
            static_cast<T>(static_cast<double>(s) * sums[2 * j + 1] / rows)};
  }
  __device__ Values read(std::size_t row, std::size_t j) const {
    return {in.x_at(row, j), in.grad_at(row, j)};
  }
  __device__ void write(std::size_t row, std::size_t j, const Column& c,
                        const Values& values) const {
    grad_x[row * grad_x_leading_dimension + j] =
        c.factor * (values.grad - c.offset - (values.x - c.mean) * c.slope);
  }
};

// Features first ... first + count - 1.
template <typename T>
void run_backward(Stream& stream, const char* name, const BatchNormBackward& call,
                  std::size_t first, std::size_t count) {
  const auto at_first = [&](const auto& view) {
    auto* const data = data_of<T>(view);
    return data ? data + first : data;
  };
  double* const sums = workspace_of(stream).column_sums;
  const BackwardInputs<T> in{at_first(call.x),      call.x.leading_dimension,
                             at_first(call.grad_y), call.grad_y.leading_dimension,
                             at_first(call.mean),   at_first(call.inverse_std)};
  launch_column_reduce(
      stream, name, call.x.rows, count,
      BackwardSums<T>{in, at_first(call.grad_weight), at_first(call.grad_bias), sums});
  if (!call.grad_x.data) return;
  const bool through_batch = call.statistics == BatchNormForward::Statistics::batch;
  launch_column_map(stream, name, call.x.rows, count,
                    InputGradient<T>{in, at_first(call.weight), through_batch ? sums : nullptr,
                                     static_cast<double>(call.x.rows), at_first(call.grad_x),
                                     call.grad_x.leading_dimension});
}

}  // namespace

void CudaBackend::batch_norm_backward(Stream& stream, const BatchNormBackward& call) {
  const auto* name = "batch_norm backward";
  checks::batch_norm_backward(call);
  const std::size_t features = call.x.cols;
  for_floating(call.x.dtype, name, [&]<typename T>() {
    for (std::size_t first = 0; first < features; first += kMaxColumns) {
      run_backward<T>(stream, name, call, first, std::min(kMaxColumns, features - first));
    }
  });
}

}  // namespace lockstep::kernels::cuda
