// Many tensors in one call: SGD and AdamW, one pass over each parameter, and clipping.
// Source: torch/optim/sgd.py and adamw.py, the single-tensor forms.
#include <cmath>

#include "kernels/cpu/eigen_backend.h"
#include "kernels/cpu/parallel.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace lockstep::kernels {
namespace {

// Numbers smaller than the smallest normal one, where a state decays towards zero.
//
// A momentum that no gradient feeds any more, such as that of a unit which ReLU has shut, shrinks
// to a few times 1.4e-45 and stays there: 0.9 times that rounds back to itself. Many CPUs need over
// a hundred cycles for an operation on such a number, so that the updates of a net that has learned
// its data took fifteen times as long as before. They count as zero here.
//
// While one is alive, the calling thread's floating-point operations read subnormal numbers as zero
// and give zero in place of them; on CPUs other than x86-64 and AArch64 nothing changes.
class FlushSubnormals {
 public:
  FlushSubnormals() : before_(control()) { set_control(before_ | kFlush); }
  ~FlushSubnormals() { set_control(before_); }
  FlushSubnormals(const FlushSubnormals&) = delete;
  FlushSubnormals& operator=(const FlushSubnormals&) = delete;

 private:
#if defined(__x86_64__)
  static constexpr std::uint64_t kFlush = 0x8040;  // MXCSR: flush to zero, denormals are zeros
  static std::uint64_t control() {
    return _mm_getcsr();
  }
  static void set_control(std::uint64_t value) {
    _mm_setcsr(static_cast<unsigned>(value));
  }
#elif defined(__aarch64__)
  static constexpr std::uint64_t kFlush = std::uint64_t{1} << 24;  // FPCR: flush to zero
  static std::uint64_t control() {
    std::uint64_t value;
    asm volatile("mrs %0, fpcr" : "=r"(value));
    return value;
  }
  static void set_control(std::uint64_t value) {
    asm volatile("msr fpcr, %0" : : "r"(value));
  }
#else
  static constexpr std::uint64_t kFlush = 0;
  static std::uint64_t control() {
    return 0;
  }
  static void set_control(std::uint64_t) {}
#endif

  std::uint64_t before_;
};

// Calls body(parameter, begin, end) for all elements of all parameters, cut over the threads as if
// the parameters were one long vector.
template <typename Body>
void for_parameters(Stream& stream, std::span<const OptimizerParameter> parameters,
                    const Body& body) {
  std::size_t total = 0;
  for (const OptimizerParameter& parameter : parameters) total += parameter.weight.num_elements;
  parallel_elements(stream, total, [&](std::size_t begin, std::size_t end) {
    const FlushSubnormals flush;
    std::size_t offset = 0;
    for (const OptimizerParameter& parameter : parameters) {
      const std::size_t size = parameter.weight.num_elements;
      const std::size_t from = std::max(begin, offset);
      const std::size_t to = std::min(end, offset + size);
      if (from < to) body(parameter, from - offset, to - offset);
      offset += size;
    }
  });
}

template <typename T>
struct SgdNumbers {
  T learning_rate;
  T weight_decay;
  T momentum;
  T fresh;  // what the gradient is multiplied by before it enters the momentum
};

// A weight's step without momentum, and with it.
struct PlainStep {
  template <typename T>
  static void run(const SgdNumbers<T>& n, T* w, const T* grad, T*, std::size_t begin,
                  std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      w[i] -= n.learning_rate * (grad[i] + n.weight_decay * w[i]);
    }
  }
};

template <SgdOptions::Kind kKind>
struct MomentumStep {
  template <typename T>
  static void run(const SgdNumbers<T>& n, T* __restrict w, const T* __restrict grad,
                  T* __restrict momentum, std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      const T d = grad[i] + n.weight_decay * w[i];
      momentum[i] = n.momentum * momentum[i] + n.fresh * d;
      w[i] -= n.learning_rate *
              (kKind == SgdOptions::Kind::nesterov ? d + n.momentum * momentum[i] : momentum[i]);
    }
  }
};

template <typename Step>
void run_sgd(Stream& stream, std::span<const OptimizerParameter> parameters,
             const StepScalars& scalars, const SgdOptions& options) {
  const double rate = *data_of<double>(scalars.learning_rate);
  // In the first step the momentum becomes the gradient.
  const bool is_first = *data_of<std::int64_t>(scalars.step) == 0;
  const double fresh = is_first ? 1 : 1 - options.dampening;
  for_parameters(
      stream, parameters, [&](const OptimizerParameter& p, std::size_t begin, std::size_t end) {
        for_floating(p.weight.dtype, "sgd", [&]<typename T>() {
          const SgdNumbers<T> numbers{static_cast<T>(rate), static_cast<T>(options.weight_decay),
                                      static_cast<T>(options.momentum), static_cast<T>(fresh)};
          Step::run(numbers, data_of<T>(p.weight), data_of<T>(p.grad), data_of<T>(p.first), begin,
                    end);
        });
      });
}

struct AdamWNumbers {
  double shrink;     // 1 - lr * weight_decay
  double step_size;  // lr / (1 - beta1^t)
  double root;       // sqrt(1 - beta2^t)
};

template <typename T>
void adamw_range(const AdamWOptions& options, const AdamWNumbers& numbers, T* __restrict w,
                 const T* __restrict grad, T* __restrict first, T* __restrict second,
                 std::size_t begin, std::size_t end) {
  const T shrink = static_cast<T>(numbers.shrink);
  const T step_size = static_cast<T>(numbers.step_size);
  const T root = static_cast<T>(numbers.root);
  const T fresh1 = static_cast<T>(1 - options.beta1);
  const T beta2 = static_cast<T>(options.beta2);
  const T fresh2 = static_cast<T>(1 - options.beta2);
  const T epsilon = static_cast<T>(options.epsilon);
  for (std::size_t i = begin; i < end; ++i) {
    const T g = grad[i];
    first[i] += fresh1 * (g - first[i]);
    second[i] = beta2 * second[i] + fresh2 * g * g;
    const T denominator = std::sqrt(second[i]) / root + epsilon;
    w[i] = w[i] * shrink - step_size * (first[i] / denominator);
  }
}

}  // namespace

void EigenBackend::sgd(Stream& stream, std::span<const OptimizerParameter> parameters,
                       const StepScalars& scalars, const SgdOptions& options) {
  if (options.momentum == 0) {
    run_sgd<PlainStep>(stream, parameters, scalars, options);
  } else if (options.kind == SgdOptions::Kind::nesterov) {
    run_sgd<MomentumStep<SgdOptions::Kind::nesterov>>(stream, parameters, scalars, options);
  } else {
    run_sgd<MomentumStep<SgdOptions::Kind::plain>>(stream, parameters, scalars, options);
  }
  ++*data_of<std::int64_t>(scalars.step);
}

void EigenBackend::adamw(Stream& stream, std::span<const OptimizerParameter> parameters,
                         const StepScalars& scalars, const AdamWOptions& options) {
  const double rate = *data_of<double>(scalars.learning_rate);
  const auto t = static_cast<double>(*data_of<std::int64_t>(scalars.step) + 1);
  const AdamWNumbers numbers{1 - rate * options.weight_decay,
                             rate / (1 - std::pow(options.beta1, t)),
                             std::sqrt(1 - std::pow(options.beta2, t))};
  for_parameters(stream, parameters,
                 [&](const OptimizerParameter& p, std::size_t begin, std::size_t end) {
                   for_floating(p.weight.dtype, "adamw", [&]<typename T>() {
                     adamw_range(options, numbers, data_of<T>(p.weight), data_of<T>(p.grad),
                                 data_of<T>(p.first), data_of<T>(p.second), begin, end);
                   });
                 });
  ++*data_of<std::int64_t>(scalars.step);
}

void EigenBackend::clip(Stream& stream, std::span<const TensorView> tensors, ConstTensorView norm,
                        double max_norm) {
  const double factor = max_norm / (*data_of<double>(norm) + 1e-6);
  if (factor >= 1) return;
  for (const TensorView& tensor : tensors) scale(stream, tensor, factor, tensor);
}

}  // namespace lockstep::kernels
