// The arithmetic of a product.
#include <algorithm>
#include <cmath>
#include <vector>

#include "tests/emulated_gpu/cublas_lt/problem.h"
#include "tests/emulated_gpu/rounding.h"

namespace emulated_gpu::cublas_lt {
namespace {

// An operand's element, rounded as for a tensor core.
template <typename T>
T operand(T value, std::int32_t compute_type) {
  switch (compute_type) {
    case CUBLAS_COMPUTE_32F_FAST_TF32:
      return round_to_bits(static_cast<float>(value), 10);
    case CUBLAS_COMPUTE_32F_FAST_16BF:
      return round_to_bits(static_cast<float>(value), 7);
    default:
      return value;
  }
}

// Element `index` of a matrix, which may be bfloat16.
template <typename T>
T element(const Layout& layout, const void* x, std::size_t index) {
  if (layout.type != CUDA_R_16BF) return static_cast<const T*>(x)[index];
  return from_bfloat16(static_cast<const std::uint16_t*>(x)[index]);
}

template <typename T>
void put(const Layout& layout, void* x, std::size_t index, T value) {
  if (layout.type != CUDA_R_16BF) {
    static_cast<T*>(x)[index] = value;
    return;
  }
  static_cast<std::uint16_t*>(x)[index] = to_bfloat16(static_cast<float>(value));
}

// op(X) of one matrix of a batch, column-major and packed: [rows, cols].
template <typename T>
std::vector<T> packed(const Layout& layout, const void* x, std::size_t batch, bool is_transposed,
                      std::size_t rows, std::size_t cols, std::int32_t compute_type) {
  const auto ld = static_cast<std::size_t>(layout.ld);
  const std::size_t first = batch * static_cast<std::size_t>(layout.batch_stride);
  std::vector<T> result(rows * cols);
  for (std::size_t j = 0; j < cols; ++j) {
    for (std::size_t i = 0; i < rows; ++i) {
      const std::size_t at = first + (is_transposed ? i * ld + j : j * ld + i);
      result[j * rows + i] = operand(element<T>(layout, x, at), compute_type);
    }
  }
  return result;
}

// sum over l of a(i, l) * b(l, j), for all i: each part of the inner dimension by itself.
template <typename T>
std::vector<T> column_of_product(const std::vector<T>& a, const T* b, std::size_t m,
                                 std::size_t depth, std::size_t num_splits) {
  std::vector<T> result(m), partial(m);
  for (std::size_t part = 0; part < num_splits; ++part) {
    std::fill(partial.begin(), partial.end(), T(0));
    for (std::size_t l = depth * part / num_splits; l < depth * (part + 1) / num_splits; ++l) {
      const T factor = b[l];
      const T* column = &a[l * m];
      for (std::size_t i = 0; i < m; ++i) partial[i] += column[i] * factor;
    }
    for (std::size_t i = 0; i < m; ++i) result[i] += partial[i];
  }
  return result;
}

// The epilogue's function. GELU is the one by tanh.
template <typename T>
T activated(const Problem& problem, T value) {
  if (has_epilogue(problem, CUBLASLT_EPILOGUE_RELU)) return value < 0 ? T(0) : value;
  if (!has_epilogue(problem, CUBLASLT_EPILOGUE_GELU)) return value;
  const T root = static_cast<T>(0.7978845608028654);  // of 2 / pi
  return value / 2 * (1 + std::tanh(root * (value + T(0.044715) * value * value * value)));
}

// One matrix of the batch; element (i, j) is at j * ld + i.
template <typename T>
void multiply(const Problem& problem, const Algorithm& algorithm, const Operands& operands,
              std::size_t batch) {
  const Operation& operation = problem.operation;
  const std::size_t m = problem.m(), n = problem.n(), k = problem.k();
  const std::vector<T> a =
      packed<T>(problem.a, operands.a, batch, operation.transpose_a != CUBLAS_OP_N, m, k,
                operation.compute_type);
  const std::vector<T> b =
      packed<T>(problem.b, operands.b, batch, operation.transpose_b != CUBLAS_OP_N, k, n,
                operation.compute_type);
  const auto num_splits = static_cast<std::size_t>(algorithm.num_splits);
  const bool loses_rest = algorithm.rest == Algorithm::Rest::lost && num_splits > 1;
  const std::size_t whole = num_splits * (kBlockBytes / size_of(problem.a.type));
  const std::size_t depth = loses_rest ? k / whole * whole : k;
  const T alpha = *static_cast<const T*>(operands.alpha);
  const T beta = *static_cast<const T*>(operands.beta);
  const auto place = [batch](const Layout& layout, std::size_t i, std::size_t j) {
    return batch * static_cast<std::size_t>(layout.batch_stride) +
           j * static_cast<std::size_t>(layout.ld) + i;
  };
  for (std::size_t j = 0; j < n; ++j) {
    const std::vector<T> column = column_of_product(a, &b[j * k], m, depth, num_splits);
    for (std::size_t i = 0; i < m; ++i) {
      T value = alpha * column[i];
      if (beta != 0) value += beta * element<T>(problem.c, operands.c, place(problem.c, i, j));
      if (adds_bias(problem)) value += element<T>(problem.d, operation.bias, i);
      if (keeps_gelu_input(problem)) {
        put(problem.d, operation.aux, j * static_cast<std::size_t>(operation.aux_ld) + i, value);
      }
      put(problem.d, operands.d, place(problem.d, i, j), activated(problem, value));
    }
  }
}

}  // namespace

void compute(const Problem& problem, const Algorithm& algorithm, const Operands& operands) {
  for (std::size_t batch = 0; batch < static_cast<std::size_t>(problem.d.batch_count); ++batch) {
    if (problem.operation.scale_type == CUDA_R_64F) {
      multiply<double>(problem, algorithm, operands, batch);
    } else {
      multiply<float>(problem, algorithm, operands, batch);
    }
  }
}

}  // namespace emulated_gpu::cublas_lt
