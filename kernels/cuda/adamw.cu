// AdamW for all parameters of one type in one launch (for up to 87 of them).
// Source: torch/optim/adamw.py. Moves 4 elements in and 3 out per parameter element.
#include <cmath>
#include <cstdint>

#include "kernels/cuda/checks.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/step_count.cuh"
#include "kernels/cuda/tensor_list.cuh"

namespace lockstep::kernels::cuda {
namespace {

// What does not change from step to step.
template <typename T>
struct AdamWNumbers {
  double weight_decay;
  double log_beta1;
  double log_beta2;
  T fresh1;  // 1 - beta1
  T beta2;
  T fresh2;  // 1 - beta2
  T epsilon;
  const double* learning_rate;
  StepCount count;
};

// What does.
template <typename T>
struct StepNumbers {
  T shrink;     // 1 - lr * weight_decay
  T step_size;  // lr / (1 - beta1^t)
  T root;       // sqrt(1 - beta2^t)
};

template <typename T>
__device__ StepNumbers<T> step_numbers(const AdamWNumbers<T>& n, std::int64_t step) {
  const double rate = *n.learning_rate;
  const auto t = static_cast<double>(step + 1);
  // 1 - beta^t as -expm1(t log(beta)): quicker than a power, and precise for small t.
  return {static_cast<T>(1 - rate * n.weight_decay), static_cast<T>(rate / -expm1(t * n.log_beta1)),
          static_cast<T>(sqrt(-expm1(t * n.log_beta2)))};
}

template <typename T, typename List>
__global__ void adamw_kernel(List list, AdamWNumbers<T> n) {
  __shared__ StepNumbers<T> shared_step;
  const Slice slice = slice_of_block(list, ThreadPart<T>::kElementsPerBlock);
  T* const weight = static_cast<T*>(list.data[0][slice.tensor]);
  const T* const grad = static_cast<const T*>(list.data[1][slice.tensor]);
  T* const first = static_cast<T*>(list.data[2][slice.tensor]);
  T* const second = static_cast<T*>(list.data[3][slice.tensor]);
  const ThreadPart<T> part(
      slice, is_aligned(weight) && is_aligned(grad) && is_aligned(first) && is_aligned(second));
  Vector<T> w = part.load(weight);
  const Vector<T> g = part.load(grad);
  Vector<T> m = part.load(first);
  Vector<T> v = part.load(second);
  // While these loads are under way, one thread computes what all need.
  SeenStep seen{};
  if (threadIdx.x == 0) {
    seen = see_step(n.count);
    shared_step = step_numbers(n, seen.step);
  }
  __syncthreads();
  const StepNumbers<T> step = shared_step;
#pragma unroll
  for (std::size_t k = 0; k < kWidth<T>; ++k) {
    m.at[k] += n.fresh1 * (g.at[k] - m.at[k]);
    v.at[k] = n.beta2 * v.at[k] + n.fresh2 * g.at[k] * g.at[k];
    const T denominator = sqrt(v.at[k]) / step.root + n.epsilon;
    w.at[k] = w.at[k] * step.shrink - step.step_size * (m.at[k] / denominator);
  }
  part.store(weight, w);
  part.store(first, m);
  part.store(second, v);
  if (threadIdx.x == 0) count_step(n.count, seen);
}

template <typename T>
void run_adamw(Stream& stream, std::span<const AdamWParameter> parameters,
               const StepScalars& scalars, const AdamWOptions& options, const StepCount& count) {
  const AdamWNumbers<T> numbers{options.weight_decay,
                                std::log(options.beta1),
                                std::log(options.beta2),
                                static_cast<T>(1 - options.beta1),
                                static_cast<T>(options.beta2),
                                static_cast<T>(1 - options.beta2),
                                static_cast<T>(options.epsilon),
                                data_of<double>(scalars.learning_rate),
                                count};
  const auto entry = [&](std::size_t i) -> TensorEntry<4> {
    const AdamWParameter& p = parameters[i];
    if (p.weight.dtype != dtype_of<T>) return {};
    return {
        {p.weight.data, const_cast<void*>(p.grad.data), p.first_moment.data, p.second_moment.data},
        p.weight.num_elements};
  };
  for_tensor_lists<4>(parameters.size(), ThreadPart<T>::kElementsPerBlock, entry,
                      [&]<typename List>(const List& list, unsigned num_blocks) {
                        launch(stream, "adamw", {dim3(num_blocks), dim3(kThreads)},
                               adamw_kernel<T, List>, list, numbers);
                      });
}

}  // namespace

void CudaBackend::adamw(Stream& stream, std::span<const AdamWParameter> parameters,
                        const StepScalars& scalars, const AdamWOptions& options) {
  checks::adamw(parameters, scalars);
  for (const AdamWParameter& p : parameters) require_floating("adamw", p.weight.dtype);
  const StepCount count = step_count(stream, "adamw", data_of<std::int64_t>(scalars.step),
                                     num_blocks_of_weights(parameters));
  run_adamw<float>(stream, parameters, scalars, options, count);
  run_adamw<double>(stream, parameters, scalars, options, count);
}

}  // namespace lockstep::kernels::cuda
