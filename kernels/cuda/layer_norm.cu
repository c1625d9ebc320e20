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

template <typename X, typename T = ArithmeticOf<X>>
__global__ void layer_norm_kernel(std::size_t rows, std::size_t cols, Rows<const X> x_rows,
                                  const T* weight, const T* bias, Rows<X> y_rows, T* means,
                                  T* inverse_stds, double epsilon) {
  for_rows(rows, [&](std::size_t row, unsigned lane) {
    const X* const x = x_rows[row];
    X* const y = y_rows[row];
    double sum = 0;
    for (std::size_t j = lane; j < cols; j += kWarp) sum += static_cast<double>(number(x[j]));
    const double mean = sum_in_all_lanes(sum) / static_cast<double>(cols);
    double squares = 0;
    for (std::size_t j = lane; j < cols; j += kWarp) {
      const double offset = static_cast<double>(number(x[j])) - mean;
      squares += offset * offset;
    }
    const double variance = sum_in_all_lanes(squares) / static_cast<double>(cols);
    const T kept_mean = static_cast<T>(mean);
    const T inverse_std = static_cast<T>(1 / sqrt(variance + epsilon));
    for (std::size_t j = lane; j < cols; j += kWarp) {
      y[j] = static_cast<X>((number(x[j]) - kept_mean) * inverse_std * weight[j] + bias[j]);
    }
    if (lane == 0) {
      means[row] = kept_mean;
      inverse_stds[row] = inverse_std;
    }
  });
}

template <typename X>
struct NormGradients {
  using T = ArithmeticOf<X>;
  std::size_t rows;
  std::size_t cols;
  Rows<const X> x;
  const T* weight;
  const T* mean;
  const T* inverse_std;
  Rows<const X> grad_y;
  Rows<X> grad_x;
  T* grad_weight;  // or nullptr
  T* grad_bias;    // or nullptr

  __device__ T normalised(std::size_t row, std::size_t j) const {
    return (number(x[row][j]) - mean[row]) * inverse_std[row];
  }
};

// grad_x = inverse_std * (g - mean(g) - x^ * mean(g * x^)) with g = grad_y * weight.
template <typename X>
__global__ void input_gradient_kernel(NormGradients<X> call) {
  using T = ArithmeticOf<X>;
  for_rows(call.rows, [&](std::size_t row, unsigned lane) {
    const X* const grad_y = call.grad_y[row];
    X* const grad_x = call.grad_x[row];
    double sum = 0;
    double product = 0;
    for (std::size_t j = lane; j < call.cols; j += kWarp) {
      const double grad = static_cast<double>(number(grad_y[j]) * call.weight[j]);
      sum += grad;
      product += grad * static_cast<double>(call.normalised(row, j));
    }
    const T offset = static_cast<T>(sum_in_all_lanes(sum) / static_cast<double>(call.cols));
    const T slope = static_cast<T>(sum_in_all_lanes(product) / static_cast<double>(call.cols));
    for (std::size_t j = lane; j < call.cols; j += kWarp) {
      const T grad = number(grad_y[j]) * call.weight[j];
      grad_x[j] =
          static_cast<X>(call.inverse_std[row] * (grad - offset - call.normalised(row, j) * slope));
    }
  });
}

template <typename X>
struct ParameterGradients {
  using T = ArithmeticOf<X>;
  static constexpr int kValues = 2;
  NormGradients<X> g;

  __device__ void add(std::size_t row, std::size_t j, double (&sums)[2]) const {
    const double grad = static_cast<double>(number(g.grad_y[row][j]));
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
  for_activations(call.x.dtype, "layer_norm", [&]<typename X>() {
    using T = ArithmeticOf<X>;
    launch(stream, "layer_norm", covering(call.x.rows * kWarp, kThreads), layer_norm_kernel<X>,
           call.x.rows, call.x.cols, rows_of<X>(call.x), data_of<T>(call.weight),
           data_of<T>(call.bias), rows_of<X>(call.y), data_of<T>(call.mean),
           data_of<T>(call.inverse_std), call.epsilon);
  });
}

void CudaBackend::layer_norm_backward(Stream& stream, const LayerNormBackward& call) {
  const auto* name = "layer_norm backward";
  for_activations(call.x.dtype, name, [&]<typename X>() {
    using T = ArithmeticOf<X>;
    const NormGradients<X> gradients{.rows = call.x.rows,
                                     .cols = call.x.cols,
                                     .x = rows_of<X>(call.x),
                                     .weight = data_of<T>(call.weight),
                                     .mean = data_of<T>(call.mean),
                                     .inverse_std = data_of<T>(call.inverse_std),
                                     .grad_y = rows_of<X>(call.grad_y),
                                     .grad_x = rows_of<X>(call.grad_x),
                                     .grad_weight = data_of<T>(call.grad_weight),
                                     .grad_bias = data_of<T>(call.grad_bias)};
    if (gradients.grad_weight || gradients.grad_bias) {
      launch_column_reduce(stream, name, call.x.rows, call.x.cols,
                           ParameterGradients<X>{gradients});
    }
    if (call.grad_x.data && call.x.rows > 0) {
      launch(stream, name, covering(call.x.rows * kWarp, kThreads), input_gradient_kernel<X>,
             gradients);
    }
  });
}

}  // namespace lockstep::kernels::cuda
