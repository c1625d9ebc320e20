#include "tests/emulated_gpu/cublas_lt/product.h"

#include <algorithm>
#include <vector>

#include "tests/emulated_gpu/cublas_lt/elements.h"

namespace emulated_gpu::cublas_lt {
namespace {

// One matrix of a batch; element (i, j) is at j * ld + i.
struct Matrix {
  const void* data;
  std::uint32_t type;
  std::size_t ld;
  std::size_t offset;  // elements before it

  std::size_t index(std::size_t i, std::size_t j) const { return offset + j * ld + i; }
};

Matrix matrix_of(const Layout& layout, const void* data, std::size_t batch) {
  return {data, layout.type, static_cast<std::size_t>(layout.ld),
          batch * static_cast<std::size_t>(layout.batch_stride)};
}

// What a tensor core is given in place of an operand's element.
template <typename T>
T operand(T value, std::int32_t compute_type) {
  switch (compute_type) {
    case CUBLAS_COMPUTE_32F_FAST_TF32:
      return round_to_tf32(static_cast<float>(value));
    case CUBLAS_COMPUTE_32F_FAST_16BF:
      return round_to_bf16(static_cast<float>(value));
    case CUBLAS_COMPUTE_32F_FAST_16F:
      return round_to_fp16(static_cast<float>(value));
    default:
      return value;
  }
}

// op(X), column-major and packed: [rows, cols].
template <typename T>
std::vector<T> packed(const Matrix& x, bool is_transposed, std::size_t rows, std::size_t cols,
                      std::int32_t compute_type) {
  std::vector<T> result(rows * cols);
  for (std::size_t j = 0; j < cols; ++j) {
    for (std::size_t i = 0; i < rows; ++i) {
      const std::size_t index = is_transposed ? x.index(j, i) : x.index(i, j);
      result[j * rows + i] = operand(load<T>(x.data, x.type, index), compute_type);
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
        c_(matrix_of(problem.c, operands.c, batch)),
        d_(matrix_of(problem.d, operands.d, batch)),
        d_data_(operands.d),
        bias_offset_(batch * static_cast<std::size_t>(problem.operation.bias_batch_stride)) {
    const Operation& operation = problem.operation;
    a_ = packed<T>(matrix_of(problem.a, operands.a, batch), operation.transpose_a != CUBLAS_OP_N,
                   problem.m(), problem.k(), operation.compute_type);
    b_ = packed<T>(matrix_of(problem.b, operands.b, batch), operation.transpose_b != CUBLAS_OP_N,
                   problem.k(), problem.n(), operation.compute_type);
  }

  void run() {
    const std::size_t m = problem_.m(), n = problem_.n();
    for (std::size_t j = 0; j < n; ++j) {
      const std::vector<T> column = column_of_product(j);
      for (std::size_t i = 0; i < m; ++i) {
        T value = alpha_ * column[i];
        if (beta_ != 0) value += beta_ * load<T>(c_.data, c_.type, c_.index(i, j));
        if (adds_bias(problem_)) {
          value += load<T>(problem_.operation.bias, problem_.d.type, bias_offset_ + i);
        }
        store(d_data_, d_.type, d_.index(i, j), value);
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
  Matrix c_, d_;
  void* d_data_;
  std::size_t bias_offset_;
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
