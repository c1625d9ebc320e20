// The arithmetic of a product.
#include "tests/emulated_gpu/cublas_lt/problem.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

namespace emulated_gpu::cublas_lt {
namespace {

// Keeps this many of the 23 bits behind the point, rounded to nearest even.
float round_to_bits(float value, unsigned bits) {
  if (std::isnan(value)) return value;
  const unsigned dropped = 23 - bits;
  std::uint32_t word = std::bit_cast<std::uint32_t>(value);
  word += (1u << (dropped - 1)) - 1 + (word >> dropped & 1u);
  return std::bit_cast<float>(word >> dropped << dropped);
}

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

// One matrix of a batch; element (i, j) is at j * ld + i.
template <typename T>
T* matrix_of(const Layout& layout, T* data, std::size_t batch) {
  return data + batch * static_cast<std::size_t>(layout.batch_stride);
}

// Element `index` of a factor, which may be bfloat16.
template <typename T>
T element(const Layout& layout, const void* x, std::size_t index) {
  if (layout.type != CUDA_R_16BF) return static_cast<const T*>(x)[index];
  const std::uint32_t upper = static_cast<const std::uint16_t*>(x)[index];
  return std::bit_cast<float>(upper << 16);
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

// One matrix of the batch.
template <typename T>
class Product {
 public:
  Product(const Problem& problem, const Algorithm& algorithm, const Operands& operands,
          std::size_t batch)
      : problem_(problem),
        num_splits_(static_cast<std::size_t>(algorithm.num_splits)),
        depth_(algorithm.rest == Algorithm::Rest::lost ? problem.k() / num_splits_ * num_splits_
                                                       : problem.k()),
        alpha_(*static_cast<const T*>(operands.alpha)),
        beta_(*static_cast<const T*>(operands.beta)),
        c_(matrix_of(problem.c, static_cast<const T*>(operands.c), batch)),
        d_(matrix_of(problem.d, static_cast<T*>(operands.d), batch)) {
    const Operation& operation = problem.operation;
    a_ = packed<T>(problem.a, operands.a, batch, operation.transpose_a != CUBLAS_OP_N, problem.m(),
                   problem.k(), operation.compute_type);
    b_ = packed<T>(problem.b, operands.b, batch, operation.transpose_b != CUBLAS_OP_N, problem.k(),
                   problem.n(), operation.compute_type);
  }

  void run() {
    const std::size_t m = problem_.m(), n = problem_.n();
    const auto ld_c = static_cast<std::size_t>(problem_.c.ld);
    const auto ld_d = static_cast<std::size_t>(problem_.d.ld);
    for (std::size_t j = 0; j < n; ++j) {
      const std::vector<T> column = column_of_product(j);
      for (std::size_t i = 0; i < m; ++i) {
        T value = alpha_ * column[i];
        if (beta_ != 0) value += beta_ * c_[j * ld_c + i];
        if (adds_bias(problem_)) value += static_cast<const T*>(problem_.operation.bias)[i];
        d_[j * ld_d + i] = applies_relu(problem_) && value < 0 ? T(0) : value;
      }
    }
  }

 private:
  // sum over l of op(A)(i, l) * op(B)(l, j), for all i.
  std::vector<T> column_of_product(std::size_t j) const {
    const std::size_t m = problem_.m(), k = problem_.k();
    std::vector<T> result(m), partial(m);
    for (std::size_t part = 0; part < num_splits_; ++part) {
      std::fill(partial.begin(), partial.end(), T(0));
      for (std::size_t l = depth_ * part / num_splits_; l < depth_ * (part + 1) / num_splits_;
           ++l) {
        const T factor = b_[j * k + l];
        const T* a = &a_[l * m];
        for (std::size_t i = 0; i < m; ++i) partial[i] += a[i] * factor;
      }
      for (std::size_t i = 0; i < m; ++i) result[i] += partial[i];
    }
    return result;
  }

  const Problem& problem_;
  std::size_t num_splits_;
  std::size_t depth_;  // how much of k is summed
  T alpha_, beta_;
  std::vector<T> a_, b_;
  const T* c_;
  T* d_;
};

}  // namespace

void compute(const Problem& problem, const Algorithm& algorithm, const Operands& operands) {
  for (std::size_t batch = 0; batch < static_cast<std::size_t>(problem.d.batch_count); ++batch) {
    if (problem.operation.scale_type == CUDA_R_64F) {
      Product<double>(problem, algorithm, operands, batch).run();
    } else {
      Product<float>(problem, algorithm, operands, batch).run();
    }
  }
}

}  // namespace emulated_gpu::cublas_lt
