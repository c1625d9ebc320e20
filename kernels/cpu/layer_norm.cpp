// Layer normalisation: rows are independent in the forward pass; the gradients of weight and bias
// are added in fixed blocks of rows.
#include <cmath>

#include "kernels/cpu/eigen_backend.h"
#include "kernels/cpu/lanes.h"
#include "kernels/cpu/parallel.h"
#include "kernels/norm_calls.h"

namespace lockstep::kernels {
namespace {

// A row costs about so many times the number of its elements.
constexpr std::size_t kCost = 4;

template <typename T>
void forward_row(const LayerNormForward& call, std::size_t row) {
  const std::size_t count = call.x.cols;
  const T* const x = row_of<T>(call.x, row);
  const T* const weight = data_of<T>(call.weight);
  const T* const bias = data_of<T>(call.bias);
  T* const y = row_of<T>(call.y, row);
  const T mean = sum_of(x, count) / static_cast<T>(count);
  LOCKSTEP_INDEPENDENT
  for (std::size_t j = 0; j < count; ++j) y[j] = x[j] - mean;
  const double variance = static_cast<double>(dot_of(y, y, count)) / static_cast<double>(count);
  const T inverse_std = static_cast<T>(1 / std::sqrt(variance + call.epsilon));
  LOCKSTEP_INDEPENDENT
  for (std::size_t j = 0; j < count; ++j) y[j] = y[j] * inverse_std * weight[j] + bias[j];
  data_of<T>(call.mean)[row] = mean;
  data_of<T>(call.inverse_std)[row] = inverse_std;
}

// Adds a row's part to the gradients of weight and bias; scratch has 2 * cols elements.
template <typename T>
void backward_row(const LayerNormBackward& call, std::size_t row, T* scratch, T* grad_weight,
                  T* grad_bias) {
  const std::size_t count = call.x.cols;
  const T* const x = row_of<T>(call.x, row);
  const T* const weight = data_of<T>(call.weight);
  const T* const grad_y = row_of<T>(call.grad_y, row);
  const T mean = data_of<T>(call.mean)[row];
  const T inverse_std = data_of<T>(call.inverse_std)[row];
  T* const normalised = scratch;
  T* const grad = scratch + count;
  LOCKSTEP_INDEPENDENT
  for (std::size_t j = 0; j < count; ++j) {
    normalised[j] = (x[j] - mean) * inverse_std;
    grad[j] = grad_y[j] * weight[j];
    grad_weight[j] += grad_y[j] * normalised[j];
    grad_bias[j] += grad_y[j];
  }
  if (!call.grad_x.data) return;
  const T offset = sum_of(grad, count) / static_cast<T>(count);
  const T slope = dot_of(grad, normalised, count) / static_cast<T>(count);
  T* const grad_x = row_of<T>(call.grad_x, row);
  LOCKSTEP_INDEPENDENT
  for (std::size_t j = 0; j < count; ++j) {
    grad_x[j] = inverse_std * (grad[j] - offset - normalised[j] * slope);
  }
}

}  // namespace

void EigenBackend::layer_norm_forward(Stream& stream, const LayerNormForward& call) {
  for_floating(call.x.dtype, "layer_norm", [&]<typename T>() {
    parallel_rows(stream, call.x.rows, kCost * call.x.cols,
                  [&](std::size_t begin, std::size_t end) {
                    for (std::size_t row = begin; row < end; ++row) forward_row<T>(call, row);
                  });
  });
}

void EigenBackend::layer_norm_backward(Stream& stream, const LayerNormBackward& call) {
  for_floating(call.x.dtype, "layer_norm backward", [&]<typename T>() {
    const std::size_t cols = call.x.cols;
    const std::size_t num_blocks = (call.x.rows + kRowsPerSum - 1) / kRowsPerSum;
    std::vector<T> partials(num_blocks * 2 * cols);  // each block's for weight, then for bias
    parallel_blocks(stream, call.x.rows, kRowsPerSum, kCost * cols,
                    [&](std::size_t block, std::size_t begin, std::size_t end) {
                      T* const sums = partials.data() + block * 2 * cols;
                      T* const scratch = thread_scratch<T>(2 * cols);
                      for (std::size_t row = begin; row < end; ++row) {
                        backward_row(call, row, scratch, sums, sums + cols);
                      }
                    });
    const auto add_up = [&](const TensorView& to, std::size_t offset) {
      if (!to.data) return;
      T* const total = data_of<T>(to);
      std::fill_n(total, cols, T(0));
      for (std::size_t block = 0; block < num_blocks; ++block) {
        const T* const sums = partials.data() + block * 2 * cols + offset;
        for (std::size_t j = 0; j < cols; ++j) total[j] += sums[j];
      }
    };
    add_up(call.grad_weight, 0);
    add_up(call.grad_bias, cols);
  });
}

}  // namespace lockstep::kernels
