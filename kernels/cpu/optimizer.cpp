// Many tensors in one call: SGD and AdamW, one pass over each parameter, and clipping.
// Source: torch/optim/sgd.py and adamw.py, the single-tensor forms; ATen/native/Lerp.h.
#include <cmath>

#include "kernels/cpu/eigen_backend.h"
#include "kernels/cpu/parallel.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace lockstep::kernels {
namespace {

// Subnormal numbers, as in a state that decays towards zero.
//
// A momentum that gets no more gradients, such as that of a unit which ReLU has shut off, shrinks
// to a few times 1.4e-45 and stays there: 0.9 times that rounds back to itself. Many CPUs need over
// a hundred cycles for an operation on such a number, so the updates of a net that has learned its
// data took fifteen times as long as before. They count as zero here.
//
// While one is alive, the calling thread's floating-point operations read subnormal numbers as zero
// and return zero instead of them. CPUs other than x86-64 have no such cost, so nothing changes
// there.
class FlushSubnormals {
#if defined(__x86_64__)
 public:
  FlushSubnormals() : before_(_mm_getcsr()) {
    _mm_setcsr(before_ | kFlush);
  }
  ~FlushSubnormals() {
    _mm_setcsr(before_);
  }
  FlushSubnormals(const FlushSubnormals&) = delete;
  FlushSubnormals& operator=(const FlushSubnormals&) = delete;

 private:
  static constexpr unsigned kFlush = 0x8040;  // MXCSR: flush to zero, denormals are zeros
  unsigned before_;
#endif
};

// Calls step(weight, grad, first, second, begin, end) for all elements of all parameters, with
// pointers to their elements, cut over the threads as if the parameters were one long vector.
template <typename Step>
void for_parameters(Stream& stream, const char* operation,
                    std::span<const OptimizerParameter> parameters, const Step& step) {
  std::size_t total = 0;
  for (const OptimizerParameter& parameter : parameters) total += parameter.weight.num_elements;
  parallel_elements(stream, total, [&](std::size_t begin, std::size_t end) {
    [[maybe_unused]] const FlushSubnormals flush;
    std::size_t offset = 0;
    for (const OptimizerParameter& p : parameters) {
      const std::size_t size = p.weight.num_elements;
      const std::size_t from = std::max(begin, offset);
      const std::size_t to = std::min(end, offset + size);
      if (from < to) {
        for_floating(p.weight.dtype, operation, [&]<typename T>() {
          step(data_of<T>(p.weight), data_of<T>(p.grad), data_of<T>(p.first), data_of<T>(p.second),
               from - offset, to - offset);
        });
      }
      offset += size;
    }
  });
}

}  // namespace

void EigenBackend::sgd(Stream& stream, const Sgd& call) {
  const double rate = *data_of<double>(call.scalars.learning_rate);
  // In the first step the momentum becomes the gradient.
  const bool is_first = (*data_of<std::int64_t>(call.scalars.step))++ == 0;
  const bool is_nesterov = call.options.kind == SgdOptions::Kind::nesterov;
  for_parameters(
      stream, "sgd", call.parameters,
      [&]<typename T>(T* w, const T* grad, T* v, T*, std::size_t begin, std::size_t end) {
        const T lr = static_cast<T>(rate);
        const T decay = static_cast<T>(call.options.weight_decay);
        if (call.options.momentum == 0) {
          LOCKSTEP_INDEPENDENT
          for (std::size_t i = begin; i < end; ++i) w[i] -= lr * (grad[i] + decay * w[i]);
          return;
        }
        const T momentum = static_cast<T>(call.options.momentum);
        const T fresh = static_cast<T>(is_first ? 1 : 1 - call.options.dampening);
        LOCKSTEP_INDEPENDENT
        for (std::size_t i = begin; i < end; ++i) {
          const T d = grad[i] + decay * w[i];
          v[i] = momentum * v[i] + fresh * d;
          w[i] -= lr * (is_nesterov ? d + momentum * v[i] : v[i]);
        }
      });
}

void EigenBackend::adamw(Stream& stream, const AdamW& call) {
  const double rate = *data_of<double>(call.scalars.learning_rate);
  const auto t = static_cast<double>(++*data_of<std::int64_t>(call.scalars.step));
  const double rate_of_step = rate / (1 - std::pow(call.options.beta1, t));
  const double root_of_step = std::sqrt(1 - std::pow(call.options.beta2, t));
  for_parameters(
      stream, "adamw", call.parameters,
      [&]<typename T>(T* w, const T* grad, T* m, T* v, std::size_t begin, std::size_t end) {
        const T shrink = static_cast<T>(1 - rate * call.options.weight_decay);
        const T step_size = static_cast<T>(rate_of_step);
        const T root = static_cast<T>(root_of_step);
        const T fresh1 = static_cast<T>(1 - call.options.beta1);
        const bool is_mostly_fresh = fresh1 >= T(0.5);  // PyTorch's lerp starts from the nearer end
        const T beta2 = static_cast<T>(call.options.beta2);
        const T fresh2 = static_cast<T>(1 - call.options.beta2);
        const T epsilon = static_cast<T>(call.options.epsilon);
        LOCKSTEP_INDEPENDENT
        for (std::size_t i = begin; i < end; ++i) {
          const T g = grad[i];
          m[i] = is_mostly_fresh ? g - (T(1) - fresh1) * (g - m[i]) : m[i] + fresh1 * (g - m[i]);
          v[i] = beta2 * v[i] + fresh2 * g * g;
          const T denominator = std::sqrt(v[i]) / root + epsilon;
          w[i] = w[i] * shrink - step_size * (m[i] / denominator);
        }
      });
}

void EigenBackend::clip(Stream& stream, const Clip& call) {
  const double factor = call.max_norm / (*data_of<double>(call.norm) + 1e-6);
  if (factor >= 1) return;
  for (const TensorView& tensor : call.tensors) scale(stream, {tensor, factor, tensor});
}

}  // namespace lockstep::kernels
