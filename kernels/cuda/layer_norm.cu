// Layer normalisation: a warp takes a row, and reads it from the cache after the first time. The
// gradients of weight and bias are sums over rows (reduce.cuh), in a separate launch.
#include <cmath>

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/element_types.cuh"
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/reduce.cuh"

namespace lockstep::kernels::cuda {
namespace {

// The sum over a warp, in all its lanes.
__device__ double sum_in_all_lanes(double value) {
  for (unsigned distance = kWarp / 2; distance > 0; distance /= 2) {
    value += __shfl_xor_sync(kAllLanes, value, distance);
  }
  return value;
}

// Calls body(row, lane) with a whole warp for each row.
template <typename Body>
__device__ void for_rows(std::size_t rows, const Body& body) {
  for (std::size_t row = global_thread() / kWarp; row < rows; row += num_global_threads() / kWarp) {
    body(row, threadIdx.x % kWarp);
  }
}

template <typename T>
struct Normalised {
  const T* x;
  std::size_t x_leading_dimension;
  const T* weight;
  const T* bias;
  T* y;
  std::size_t y_leading_dimension;
  T* mean;
  T* inverse_std;
  std::size_t rows;
  std::size_t cols;
  double epsilon;
};

template <typename T>
__global__ void layer_norm_kernel(Normalised<T> call) {
  for_rows(call.rows, [&](std::size_t row, unsigned lane) {
    const T* const x = call.x + row * call.x_leading_dimension;
    T* const y = call.y + row * call.y_leading_dimension;
    double sum = 0;
    for (std::size_t j = lane; j < call.cols; j += kWarp) sum += static_cast<double>(x[j]);
    const double mean = sum_in_all_lanes(sum) / static_cast<double>(call.cols);
    double squares = 0;
    for (std::size_t j = lane; j < call.cols; j += kWarp) {
      const double offset = static_cast<double>(x[j]) - mean;
      squares += offset * offset;
    }
    const double variance = sum_in_all_lanes(squares) / static_cast<double>(call.cols);
    const T kept_mean = static_cast<T>(mean);
    const T inverse_std = static_cast<T>(1 / sqrt(variance + call.epsilon));
    for (std::size_t j = lane; j < call.cols; j += kWarp) {
      y[j] = (x[j] - kept_mean) * inverse_std * call.weight[j] + call.bias[j];
    }
    if (lane == 0) {
      call.mean[row] = kept_mean;
      call.inverse_std[row] = inverse_std;
    }
  });
}

template <typename T>
struct NormGradients {
  const T* x;
  std::size_t x_leading_dimension;
  const T* weight;
  const T* mean;
  const T* inverse_std;
  const T* grad_y;
  std::size_t grad_y_leading_dimension;
  T* grad_x;
  std::size_t grad_x_leading_dimension;
  T* grad_weight;  // or nullptr
  T* grad_bias;    // or nullptr
  std::size_t rows;
  std::size_t cols;

  __device__ T normalised(std::size_t row, std::size_t j) const {
    return (x[row * x_leading_dimension + j] - mean[row]) * inverse_std[row];
  }
};

// grad_x = inverse_std * (g - mean(g) - x^ * mean(g * x^)) with g = grad_y * weight.
template <typename T>
__global__ void input_gradient_kernel(NormGradients<T> call) {
  for_rows(call.rows, [&](std::size_t row, unsigned lane) {
    const T* const grad_y = call.grad_y + row * call.grad_y_leading_dimension;
    T* const grad_x = call.grad_x + row * call.grad_x_leading_dimension;
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
    const double grad = static_cast<double>(g.grad_y[row * g.grad_y_leading_dimension + j]);
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
           {.x = data_of<T>(call.x),
            .x_leading_dimension = call.x.leading_dimension,
            .weight = data_of<T>(call.weight),
            .bias = data_of<T>(call.bias),
            .y = data_of<T>(call.y),
            .y_leading_dimension = call.y.leading_dimension,
            .mean = data_of<T>(call.mean),
            .inverse_std = data_of<T>(call.inverse_std),
            .rows = call.x.rows,
            .cols = call.x.cols,
            .epsilon = call.epsilon});
  });
}

void CudaBackend::layer_norm_backward(Stream& stream, const LayerNormBackward& call) {
  const auto* name = "layer_norm backward";
  for_floating(call.x.dtype, name, [&]<typename T>() {
    const NormGradients<T> gradients{.x = data_of<T>(call.x),
                                     .x_leading_dimension = call.x.leading_dimension,
                                     .weight = data_of<T>(call.weight),
                                     .mean = data_of<T>(call.mean),
                                     .inverse_std = data_of<T>(call.inverse_std),
                                     .grad_y = data_of<T>(call.grad_y),
                                     .grad_y_leading_dimension = call.grad_y.leading_dimension,
                                     .grad_x = data_of<T>(call.grad_x),
                                     .grad_x_leading_dimension = call.grad_x.leading_dimension,
                                     .grad_weight = data_of<T>(call.grad_weight),
                                     .grad_bias = data_of<T>(call.grad_bias),
                                     .rows = call.x.rows,
                                     .cols = call.x.cols};
    if (gradients.grad_weight || gradients.grad_bias) {
      launch_column_reduce(stream, name, call.x.rows, call.x.cols,
                           ParameterGradients<T>{gradients});
    }
    if (gradients.grad_x && call.x.rows > 0) {
      launch(stream, name, covering(call.x.rows * kWarp, kThreads), input_gradient_kernel<T>,
             gradients);
    }
  });
}

}  // namespace lockstep::kernels::cuda
