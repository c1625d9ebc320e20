// SGD for all parameters of one type in one launch (for up to 106 of them).
// Source: torch/optim/sgd.py. Moves weight and gradient in and the weight out; with momentum that
// too, in and out.
#include <cstdint>

#include "kernels/cuda/checks.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/step_count.cuh"
#include "kernels/cuda/tensor_list.cuh"

namespace lockstep::kernels::cuda {
namespace {

enum class Rule { plain, momentum, nesterov };

template <typename T>
struct SgdNumbers {
  T weight_decay;
  T momentum;
  T fresh;  // what the gradient is multiplied by before it enters the momentum
  const double* learning_rate;
  StepCount count;
};

// One element. In the first step the momentum, whatever it holds, becomes the gradient.
template <Rule kRule, typename T>
__device__ void update(const SgdNumbers<T>& n, T learning_rate, bool is_first, T& weight, T grad,
                       T& momentum) {
  const T d = grad + n.weight_decay * weight;
  if constexpr (kRule == Rule::plain) {
    weight -= learning_rate * d;
  } else {
    momentum = is_first ? d : n.momentum * momentum + n.fresh * d;
    weight -= learning_rate * (kRule == Rule::nesterov ? d + n.momentum * momentum : momentum);
  }
}

template <Rule kRule, typename T, typename List>
__global__ void sgd_kernel(List list, SgdNumbers<T> n) {
  __shared__ bool is_first_step;
  const T learning_rate = static_cast<T>(*n.learning_rate);
  const Slice slice = slice_of_block(list, ThreadPart<T>::kElementsPerBlock);
  T* const weight = static_cast<T*>(list.data[0][slice.tensor]);
  const T* const grad = static_cast<const T*>(list.data[1][slice.tensor]);
  T* const momentum = static_cast<T*>(list.data[2][slice.tensor]);
  constexpr bool kHasMomentum = kRule != Rule::plain;
  const ThreadPart<T> part(
      slice, is_aligned(weight) && is_aligned(grad) && (!kHasMomentum || is_aligned(momentum)));
  Vector<T> w = part.load(weight);
  const Vector<T> g = part.load(grad);
  Vector<T> m = {};
  if constexpr (kHasMomentum) m = part.load(momentum);
  // While these loads are under way, one thread sees to the step.
  SeenStep seen{};
  if (threadIdx.x == 0) {
    seen = see_step(n.count);
    is_first_step = seen.step == 0;
  }
  __syncthreads();
  const bool is_first = is_first_step;
#pragma unroll
  for (std::size_t k = 0; k < kWidth<T>; ++k) {
    update<kRule>(n, learning_rate, is_first, w.at[k], g.at[k], m.at[k]);
  }
  part.store(weight, w);
  if constexpr (kHasMomentum) part.store(momentum, m);
  if (threadIdx.x == 0) count_step(n.count, seen);
}

template <Rule kRule, typename T>
void run_sgd(Stream& stream, std::span<const SgdParameter> parameters, const StepScalars& scalars,
             const SgdOptions& options, const StepCount& count) {
  const SgdNumbers<T> numbers{
      static_cast<T>(options.weight_decay), static_cast<T>(options.momentum),
      static_cast<T>(1 - options.dampening), data_of<double>(scalars.learning_rate), count};
  const auto entry = [&](std::size_t i) -> TensorEntry<3> {
    const SgdParameter& p = parameters[i];
    if (p.weight.dtype != dtype_of<T>) return {};
    return {{p.weight.data, const_cast<void*>(p.grad.data), p.momentum.data},
            p.weight.num_elements};
  };
  for_tensor_lists<3>(parameters.size(), ThreadPart<T>::kElementsPerBlock, entry,
                      [&]<typename List>(const List& list, unsigned num_blocks) {
                        launch(stream, "sgd", {dim3(num_blocks), dim3(kThreads)},
                               sgd_kernel<kRule, T, List>, list, numbers);
                      });
}

}  // namespace

void CudaBackend::sgd(Stream& stream, std::span<const SgdParameter> parameters,
                      const StepScalars& scalars, const SgdOptions& options) {
  checks::sgd(parameters, scalars, options);
  for (const SgdParameter& p : parameters) require_floating("sgd", p.weight.dtype);
  const StepCount count = step_count(stream, "sgd", data_of<std::int64_t>(scalars.step),
                                     num_blocks_of_weights(parameters));
  const auto run = [&]<Rule kRule>() {
    run_sgd<kRule, float>(stream, parameters, scalars, options, count);
    run_sgd<kRule, double>(stream, parameters, scalars, options, count);
  };
  if (options.momentum == 0) return run.template operator()<Rule::plain>();
  if (options.kind == SgdOptions::Kind::plain) return run.template operator()<Rule::momentum>();
  run.template operator()<Rule::nesterov>();
}

}  // namespace lockstep::kernels::cuda
