// Layer normalisation: a warp takes a row, and reads it from the cache after the first time. The
// gradients of weight and bias are sums over rows (reduce.cuh), in a separate launch.
#include <cmath>

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/element_types.cuh"
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/norm_calls.h"

namespace lockstep::kernels::cuda {
namespace {

template <typename T>
__global__ void layer_norm_kernel(std::size_t rows, std::size_t cols, Rows<const T> x_rows,
                                  const T* weight, const T* bias, Rows<T> y_rows, T* means,
                                  T* inverse_stds, double epsilon) {
  for_rows(rows, [&](std::size_t row, unsigned lane) {
    const T* const x = x_rows[row];
    T* const y = y_rows[row];
    double sum = 0;
    for (std::size_t j = lane; j < cols; j += kWarp) sum += static_cast<double>(x[j]);
    const double mean = sum_in_all_lanes(sum) / static_cast<double>(cols);
    double squares = 0;
    for (std::size_t j = lane; j < cols; j += kWarp) {
      const double offset = static_cast<double>(x[j]) - mean;
      squares += offset * offset;
    }
    const double variance = sum_in_all_lanes(squares) / static_cast<double>(cols);
    const T kept_mean = static_cast<T>(mean);
    const T inverse_std = static_cast<T>(1 / sqrt(variance + epsilon));
    for (std::size_t j = lane; j < cols; j += kWarp) {
      y[j] = (x[j] - kept_mean) * inverse_std * weight[j] + bias[j];
    }
    if (lane == 0) {
      means[row] = kept_mean;
      inverse_stds[row] = inverse_std;
    }
  });
}

template <typename T>
struct NormGradients {
  std::size_t rows;
  std::size_t cols;
  Rows<const T> x;
  const T* weight;
  const T* mean;
  const T* inverse_std;
  Rows<const T> grad_y;
  Rows<T> grad_x;
  T* grad_weight;  // or nullptr
  T* grad_bias;    // or nullptr

  __device__ T normalised(std::size_t row, std::size_t j) const {
    return (x[row][j] - mean[row]) * inverse_std[row];
  }
};

// grad_x = inverse_std * (g - mean(g) - x^ * mean(g * x^)) with g = grad_y * weight.
template <typename T>
__global__ void input_gradient_kernel(NormGradients<T> call) {
  for_rows(call.rows, [&](std::size_t row, unsigned lane) {
    const T* const grad_y = call.grad_y[row];
    T* const grad_x = call.grad_x[row];
    double sum = 0;
    double product = 0;
    for (std::size_t j = lane; j < call.cols; j += kWarp) {
      const double grad = static_cast<double>(grad_y[j] * call.weight[j]);
      sum += grad;
      product += grad * static_cast<double>(call.normalised(row, j));
    }
    const T offset = static_cast<T>(sum_in_all_lanes(sum) / static_cast<double>(call.cols));
    const T slope = static_cast<T>(sum_in_all_lanes(product) / static_cast<double>(call.cols));
    for (std::size_t j = lane; j < call.cols; j += kWarp) {
      grad_x[j] = call.inverse_std[row] *
                  (grad_y[j] * call.weight[j] - offset - call.normalised(row, j) * slope);
    }
  });
}

template <typename T>
struct ParameterGradients {
  static constexpr int kValues = 2;
  NormGradients<T> g;

  __device__ void add(std::size_t row, std::size_t j, double (&sums)[2]) const {
    const double grad = static_cast<double>(g.grad_y[row][j]);
    sums[0] += grad * static_cast<double>(g.normalised(row, j));
    sums[1] += grad;
  }
  __device__ void finish(std::size_t j, const double (&totals)[2]) const {
    if (g.grad_weight) g.grad_weight[j] = static_cast<T>(totals[0]);
    if (g.grad_bias) g.grad_bias[j] = static_cast<T>(totals[1]);
  }
};

}  // namespace

void CudaBackend::layer_norm_forward(Stream& stream, const LayerNormForward& call) {
  if (call.x.rows == 0) return;
  for_floating(call.x.dtype, "layer_norm", [&]<typename T>() {
    launch(stream, "layer_norm", covering(call.x.rows * kWarp, kThreads), layer_norm_kernel<T>,
           call.x.rows, call.x.cols, rows_of<T>(call.x), data_of<T>(call.weight),
           data_of<T>(call.bias), rows_of<T>(call.y), data_of<T>(call.mean),
           data_of<T>(call.inverse_std), call.epsilon);
  });
}

void CudaBackend::layer_norm_backward(Stream& stream, const LayerNormBackward& call) {
  const auto* name = "layer_norm backward";
  for_floating(call.x.dtype, name, [&]<typename T>() {
    const NormGradients<T> gradients{.rows = call.x.rows,
                                     .cols = call.x.cols,
                                     .x = rows_of<T>(call.x),
                                     .weight = data_of<T>(call.weight),
                                     .mean = data_of<T>(call.mean),
                                     .inverse_std = data_of<T>(call.inverse_std),
                                     .grad_y = rows_of<T>(call.grad_y),
                                     .grad_x = rows_of<T>(call.grad_x),
                                     .grad_weight = data_of<T>(call.grad_weight),
                                     .grad_bias = data_of<T>(call.grad_bias)};
    if (gradients.grad_weight || gradients.grad_bias) {
      launch_column_reduce(stream, name, call.x.rows, call.x.cols,
                           ParameterGradients<T>{gradients});
    }
    if (call.grad_x.data && call.x.rows > 0) {
      launch(stream, name, covering(call.x.rows * kWarp, kThreads), input_gradient_kernel<T>,
             gradients);
    }
  });
}

}  // namespace lockstep::kernels::cuda
