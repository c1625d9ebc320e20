#include "tests/emulated_gpu/cublas_lt/product.h"

#include <algorithm>
#include <cmath>
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

// The tanh form: 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))).
template <typename T>
T gelu(T x) {
  const T u = T(0.7978845608028654) * (x + T(0.044715) * x * x * x);
  return T(0.5) * x * (1 + std::tanh(u));
}

template <typename T>
T gelu_gradient(T x) {
  const T t = std::tanh(T(0.7978845608028654) * (x + T(0.044715) * x * x * x));
  const T du = T(0.7978845608028654) * (1 + T(3 * 0.044715) * x * x);
  return T(0.5) * (1 + t) + T(0.5) * x * (1 - t * t) * du;
}

// One matrix of the batch.
template <typename T>
class Product {
 public:
  Product(const Problem& problem, const Algorithm& algorithm, const Operands& operands,
          std::size_t batch)
      : problem_(problem),
        parts_(parts_of(problem.operation.epilogue)),
        num_splits_(static_cast<std::size_t>(algorithm.num_splits)),
        depth_(algorithm.rest == Algorithm::Rest::lost ? problem.k() / num_splits_ * num_splits_
                                                       : problem.k()),
        alpha_(*static_cast<const T*>(operands.alpha)),
        beta_(*static_cast<const T*>(operands.beta)),
        c_(matrix_of(problem.c, operands.c, batch)),
        d_(matrix_of(problem.d, operands.d, batch)),
        d_data_(operands.d),
        bias_offset_(batch * static_cast<std::size_t>(problem.operation.bias_batch_stride)),
        aux_offset_(batch * static_cast<std::size_t>(problem.operation.aux_batch_stride)) {
    const Operation& operation = problem.operation;
    a_ = packed<T>(matrix_of(problem.a, operands.a, batch), operation.transpose_a != CUBLAS_OP_N,
                   problem.m(), problem.k(), operation.compute_type);
    b_ = packed<T>(matrix_of(problem.b, operands.b, batch), operation.transpose_b != CUBLAS_OP_N,
                   problem.k(), problem.n(), operation.compute_type);
  }

  void run() {
    const std::size_t m = problem_.m(), n = problem_.n();
    std::vector<T> bias_gradient(m);
    for (std::size_t j = 0; j < n; ++j) {
      const std::vector<T> column = column_of_product(j);
      for (std::size_t i = 0; i < m; ++i) {
        T value = alpha_ * column[i];
        if (beta_ != 0) value += beta_ * load<T>(c_.data, c_.type, c_.index(i, j));
        value = finished(value, i, j);
        bias_gradient[i] += value;
        store(d_data_, d_.type, d_.index(i, j), value);
      }
    }
    if (parts_.writes_bias_gradient) store_vector(bias_gradient);
    if (parts_.sums_a) store_vector(sums_of_a());
    if (parts_.sums_b) store_vector(sums_of_b());
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

  // The epilogue, for element (i, j) of D.
  T finished(T x, std::size_t i, std::size_t j) {
    const Operation& operation = problem_.operation;
    const std::size_t aux_index = aux_offset_ + j * static_cast<std::size_t>(operation.aux_ld) + i;
    if (parts_.adds_bias) x += load<T>(operation.bias, problem_.d.type, bias_offset_ + i);
    if (parts_.is_relu) {
      // A NaN becomes 0, as cuBLASLt's ReLU makes it.
      const bool passes = x > 0;
      if (parts_.has_aux) set_bit(aux_index, passes);
      return passes ? x : T(0);
    }
    if (parts_.is_gelu) {
      if (parts_.has_aux) store(operation.aux, problem_.d.type, aux_index, x);
      return gelu(x);
    }
    if (parts_.is_relu_gradient) return bit(aux_index) ? x : T(0);
    if (parts_.is_gelu_gradient) {
      return x * gelu_gradient(load<T>(operation.aux, problem_.d.type, aux_index));
    }
    return x;
  }

  // The ReLU mask: bit `index` of the buffer, the lowest bit of a byte first.
  void set_bit(std::size_t index, bool value) const {
    auto& byte = static_cast<unsigned char*>(problem_.operation.aux)[index / 8];
    const auto mask = static_cast<unsigned char>(1u << index % 8);
    byte = static_cast<unsigned char>(value ? byte | mask : byte & ~mask);
  }
  bool bit(std::size_t index) const {
    const auto byte = static_cast<const unsigned char*>(problem_.operation.aux)[index / 8];
    return (byte >> index % 8 & 1) != 0;
  }

  void store_vector(const std::vector<T>& values) const {
    for (std::size_t i = 0; i < values.size(); ++i) {
      store(problem_.operation.bias, problem_.d.type, bias_offset_ + i, values[i]);
    }
  }

  // Over k, an entry per row of D.
  std::vector<T> sums_of_a() const {
    std::vector<T> sums(problem_.m());
    for (std::size_t l = 0; l < problem_.k(); ++l) {
      for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += a_[l * sums.size() + i];
    }
    return sums;
  }

  // Over k, an entry per column of D.
  std::vector<T> sums_of_b() const {
    std::vector<T> sums(problem_.n());
    for (std::size_t j = 0; j < sums.size(); ++j) {
      for (std::size_t l = 0; l < problem_.k(); ++l) sums[j] += b_[j * problem_.k() + l];
    }
    return sums;
  }

  const Problem& problem_;
  EpilogueParts parts_;
  std::size_t num_splits_;
  std::size_t depth_;  // how much of k is summed
  T alpha_, beta_;
  std::vector<T> a_, b_;
  Matrix c_, d_;
  void* d_data_;
  std::size_t bias_offset_, aux_offset_;
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
