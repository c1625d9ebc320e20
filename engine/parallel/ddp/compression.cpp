#include "engine/parallel/ddp/compression.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "engine/core/error.h"
#include "engine/core/rng.h"
#include "kernels/calls.h"

namespace lockstep::parallel {

namespace {

comm::Work average(const Tensor& memory, comm::Communicator& communicator, comm::Launch launch) {
  return communicator.all_reduce(memory, {.op = comm::ReduceOp::average, .launch = launch});
}

class AllReduceHook final : public CommHook {
 public:
  comm::Work start(const GradBucket& bucket, comm::Communicator& communicator,
                   comm::Launch launch) override {
    return average(bucket.memory, communicator, launch);
  }
};

class CompressHook final : public CommHook {
 public:
  explicit CompressHook(DType dtype) : dtype_(dtype) {}

  comm::Work start(const GradBucket& bucket, comm::Communicator& communicator,
                   comm::Launch launch) override {
    bucket.memory.scale_(1.0 / communicator.world_size());
    Tensor& small = small_[bucket.index];
    small = bucket.memory.to(dtype_);
    return communicator.all_reduce(small, {.op = comm::ReduceOp::sum, .launch = launch});
  }
  void finish(const GradBucket& bucket) override {
    const auto small = small_.extract(bucket.index);
    bucket.memory.copy_from(small.mapped().to(bucket.memory.dtype()));
  }

 private:
  DType dtype_;
  std::map<std::size_t, Tensor> small_;  // by bucket
};

// c = a * b with one of them transposed, or none.
Tensor product(const Tensor& a, kernels::Transpose transpose_a, const Tensor& b,
               kernels::Transpose transpose_b) {
  const bool is_a = transpose_a == kernels::Transpose::yes;
  const bool is_b = transpose_b == kernels::Transpose::yes;
  Tensor c = Tensor::empty({a.size(is_a ? 1 : 0), b.size(is_b ? 0 : 1)}, a.dtype(), a.device());
  c.backend().matmul(c.stream(), {a.matrix(), transpose_a, b.matrix(), transpose_b, c.matrix()});
  return c;
}

// Gram-Schmidt on the columns of p [n, rank], on the CPU, where a few columns cost little. A column
// that depends on those before it becomes 0.
void make_orthonormal(Tensor& p) {
  std::vector<double> values = p.to_vector<double>();
  const std::size_t n = p.size(0);
  const std::size_t rank = p.size(1);
  const auto dot = [&](std::size_t a, std::size_t b) {
    double sum = 0;
    for (std::size_t i = 0; i < n; ++i) sum += values[i * rank + a] * values[i * rank + b];
    return sum;
  };
  for (std::size_t k = 0; k < rank; ++k) {
    const double before = std::sqrt(dot(k, k));
    for (std::size_t j = 0; j < k; ++j) {
      const double share = dot(k, j);
      for (std::size_t i = 0; i < n; ++i) values[i * rank + k] -= share * values[i * rank + j];
    }
    const double length = std::sqrt(dot(k, k));
    const double factor = length > 1e-6 * before ? 1 / length : 0;
    for (std::size_t i = 0; i < n; ++i) values[i * rank + k] *= factor;
  }
  p.copy_from(Tensor::from(values, p.shape(), Device{}).to(p.dtype()).to(p.device()));
}

class PowerSgdHook final : public CommHook {
 public:
  explicit PowerSgdHook(const PowerSgdOptions& options) : options_(options) {}

  comm::Work start(const GradBucket& bucket, comm::Communicator& communicator,
                   comm::Launch launch) override {
    if (++num_steps_[bucket.index] <= options_.start_step) {
      return average(bucket.memory, communicator, launch);
    }
    for (std::size_t i = 0; i < bucket.gradients.size(); ++i) {
      const Tensor& gradient = bucket.gradients[i];
      if (shrinks(gradient)) {
        compress(gradient, parts_[{bucket.index, i}], communicator);
      } else {
        average(gradient, communicator, comm::Launch::blocking).wait();
      }
    }
    return {};
  }

 private:
  struct Part {
    Tensor q;      // [m, rank], of the step before
    Tensor error;  // like the gradient
  };

  bool shrinks(const Tensor& gradient) const {
    if (gradient.num_dims() < 2) return false;
    const std::size_t n = gradient.size(0);
    const std::size_t m = gradient.num_elements() / n;
    return (n + m) * options_.rank < n * m;
  }

  void compress(const Tensor& gradient, Part& part, comm::Communicator& communicator) const {
    using kernels::Transpose;
    const std::size_t n = gradient.size(0);
    const Tensor matrix = gradient.reshape({n, gradient.num_elements() / n});
    if (!part.q.defined()) {
      Rng rng(options_.seed);
      part.q = Tensor::normal({matrix.size(1), options_.rank}, 0, 1, rng, matrix.dtype(),
                              matrix.device());
      part.error = Tensor::zeros_like(matrix);
    }
    matrix.add_(part.error);
    Tensor p = product(matrix, Transpose::no, part.q, Transpose::no);
    average(p, communicator, comm::Launch::blocking).wait();
    make_orthonormal(p);
    part.q = product(matrix, Transpose::yes, p, Transpose::no);
    part.error.copy_from(matrix);
    average(part.q, communicator, comm::Launch::blocking).wait();
    matrix.copy_from(product(p, Transpose::no, part.q, Transpose::yes));
    part.error.add_(matrix, -1);
  }

  PowerSgdOptions options_;
  std::map<std::size_t, std::size_t> num_steps_;               // by bucket
  std::map<std::pair<std::size_t, std::size_t>, Part> parts_;  // by bucket and parameter
};

}  // namespace

std::shared_ptr<CommHook> all_reduce_hook() {
  return std::make_shared<AllReduceHook>();
}

std::shared_ptr<CommHook> compress_hook(DType dtype) {
  require(dtype == DType::float16 || dtype == DType::bfloat16, ErrorCode::Usage, "compress_hook",
          "compresses to float16 or bfloat16, not to {}", to_string(dtype));
  return std::make_shared<CompressHook>(dtype);
}

std::shared_ptr<CommHook> power_sgd_hook(const PowerSgdOptions& options) {
  require(options.rank > 0, ErrorCode::Usage, "power_sgd_hook", "rank must be at least 1, found 0");
  require(options.start_step >= 2, ErrorCode::Usage, "power_sgd_hook",
          "start_step must be at least 2, since buckets change after the first step; found {}",
          options.start_step);
  return std::make_shared<PowerSgdHook>(options);
}

}  // namespace lockstep::parallel
