// SGD, AdamW and clipping, for all tensors of one type in one launch (of up to 106, 87 and 192).
// SGD reads weight and gradient and writes the weight; with momentum it reads and writes that too.
// AdamW reads 4 elements and writes 3 per parameter element.
// Source: torch/optim/sgd.py and adamw.py.
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/element_types.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/tensor_list.cuh"

namespace lockstep::kernels::cuda {
namespace {

__global__ void count_kernel(std::int64_t* step) {
  ++*step;
}

// The launch that updates the last tensors counts the step, in its last block, when all blocks have
// read the count.
struct Counter {
  std::int64_t* step = nullptr;  // none: another launch counts
  unsigned* ticket = nullptr;

  __device__ void count() const {
    if (step != nullptr && is_last_block(ticket, gridDim.x) && threadIdx.x == 0) ++*step;
  }
};

// Runs update.template operator()<T>(counter) for the types that the parameters have.
template <typename Update>
void update_and_count(Stream& stream, std::span<const OptimizerParameter> parameters,
                      const StepScalars& scalars, const Update& update) {
  const auto has = [&](DType dtype) {
    return std::ranges::any_of(parameters, [&](const OptimizerParameter& p) {
      return p.weight.dtype == dtype && p.weight.num_elements > 0;
    });
  };
  const Counter counter{data_of<std::int64_t>(scalars.step), workspace_of(stream).tickets};
  const bool has_float = has(DType::float32), has_double = has(DType::float64);
  if (has_double) update.template operator()<double>(has_float ? Counter{} : counter);
  if (has_float) update.template operator()<float>(counter);
  if (has_float || has_double) return;
  launch(stream, "step count", {dim3(1), dim3(1)}, count_kernel, counter.step);
}

enum class Rule { plain, momentum, nesterov };

template <typename T>
struct SgdNumbers {
  T weight_decay;
  T momentum;
  T fresh;  // factor of the gradient when it enters the momentum
  const double* learning_rate;
  const std::int64_t* step;
};

// One element. In the first step the momentum becomes the gradient.
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
__global__ void sgd_kernel(List list, SgdNumbers<T> n, Counter counter) {
  const bool is_first = *n.step == 0;
  const T learning_rate = static_cast<T>(*n.learning_rate);
  const Slice slice = slice_of_block(list, ThreadPart<T>::kElementsPerBlock);
  T* const weight = static_cast<T*>(list.data[0][slice.tensor]);
  const T* const grad = static_cast<const T*>(list.data[1][slice.tensor]);
  T* const momentum = static_cast<T*>(list.data[2][slice.tensor]);
  constexpr bool kHasMomentum = kRule != Rule::plain;
  const ThreadPart<T> part(slice);
  Vector<T> w = part.load(weight);
  const Vector<T> g = part.load(grad);
  Vector<T> m = {};
  if constexpr (kHasMomentum) m = part.load(momentum);
#pragma unroll
  for (std::size_t k = 0; k < kWidth<T>; ++k) {
    update<kRule>(n, learning_rate, is_first, w.at[k], g.at[k], m.at[k]);
  }
  part.store(weight, w);
  if constexpr (kHasMomentum) part.store(momentum, m);
  counter.count();
}

template <Rule kRule, typename T>
void run_sgd(Stream& stream, std::span<const OptimizerParameter> parameters,
             const StepScalars& scalars, const SgdOptions& options, Counter counter) {
  const SgdNumbers<T> numbers{
      static_cast<T>(options.weight_decay), static_cast<T>(options.momentum),
      static_cast<T>(1 - options.dampening), data_of<double>(scalars.learning_rate),
      data_of<std::int64_t>(scalars.step)};
  const auto entry = [&](std::size_t i) -> TensorEntry<3> {
    const OptimizerParameter& p = parameters[i];
    if (p.weight.dtype != dtype_of<T>) return {};
    return {{p.weight.data, const_cast<void*>(p.grad.data), p.first.data}, p.weight.num_elements};
  };
  for_tensor_lists<3>(parameters.size(), ThreadPart<T>::kElementsPerBlock, entry,
                      [&]<typename List>(const List& list, unsigned num_blocks, bool is_last) {
                        launch(stream, "sgd", {dim3(num_blocks), dim3(kThreads)},
                               sgd_kernel<kRule, T, List>, list, numbers,
                               is_last ? counter : Counter{});
                      });
}

}  // namespace

void CudaBackend::sgd(Stream& stream, const Sgd& call) {
  const auto run = [&]<Rule kRule>() {
    update_and_count(stream, call.parameters, call.scalars, [&]<typename T>(Counter counter) {
      run_sgd<kRule, T>(stream, call.parameters, call.scalars, call.options, counter);
    });
  };
  if (call.options.momentum == 0) {
    run.template operator()<Rule::plain>();
  } else if (call.options.kind == SgdOptions::Kind::plain) {
    run.template operator()<Rule::momentum>();
  } else {
    run.template operator()<Rule::nesterov>();
  }
}

namespace {

// The numbers of AdamW that are the same in every step.
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
  const std::int64_t* step;
};

// The numbers of AdamW that change.
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
  // 1 - beta^t as -expm1(t log(beta)): faster than a power, and precise for small t.
  return {static_cast<T>(1 - rate * n.weight_decay), static_cast<T>(rate / -expm1(t * n.log_beta1)),
          static_cast<T>(sqrt(-expm1(t * n.log_beta2)))};
}

template <typename T, typename List>
__global__ void adamw_kernel(List list, AdamWNumbers<T> n, Counter counter) {
  __shared__ StepNumbers<T> shared_step;
  const Slice slice = slice_of_block(list, ThreadPart<T>::kElementsPerBlock);
  T* const weight = static_cast<T*>(list.data[0][slice.tensor]);
  const T* const grad = static_cast<const T*>(list.data[1][slice.tensor]);
  T* const first = static_cast<T*>(list.data[2][slice.tensor]);
  T* const second = static_cast<T*>(list.data[3][slice.tensor]);
  const ThreadPart<T> part(slice);
  Vector<T> w = part.load(weight);
  const Vector<T> g = part.load(grad);
  Vector<T> m = part.load(first);
  Vector<T> v = part.load(second);
  // While these loads are under way, one thread computes the numbers for all.
  if (threadIdx.x == 0) shared_step = step_numbers(n, *n.step);
  __syncthreads();
  const StepNumbers<T> step = shared_step;
#pragma unroll
  for (std::size_t k = 0; k < kWidth<T>; ++k) {
    const T change = g.at[k] - m.at[k];  // PyTorch's lerp starts from the nearer end
    m.at[k] =
        n.fresh1 < T(0.5) ? m.at[k] + n.fresh1 * change : g.at[k] - (T(1) - n.fresh1) * change;
    v.at[k] = n.beta2 * v.at[k] + n.fresh2 * g.at[k] * g.at[k];
    const T denominator = sqrt(v.at[k]) / step.root + n.epsilon;
    w.at[k] = w.at[k] * step.shrink - step.step_size * (m.at[k] / denominator);
  }
  part.store(weight, w);
  part.store(first, m);
  part.store(second, v);
  counter.count();
}

template <typename T>
void run_adamw(Stream& stream, std::span<const OptimizerParameter> parameters,
               const StepScalars& scalars, const AdamWOptions& options, Counter counter) {
  const AdamWNumbers<T> numbers{options.weight_decay,
                                std::log(options.beta1),
                                std::log(options.beta2),
                                static_cast<T>(1 - options.beta1),
                                static_cast<T>(options.beta2),
                                static_cast<T>(1 - options.beta2),
                                static_cast<T>(options.epsilon),
                                data_of<double>(scalars.learning_rate),
                                data_of<std::int64_t>(scalars.step)};
  const auto entry = [&](std::size_t i) -> TensorEntry<4> {
    const OptimizerParameter& p = parameters[i];
    if (p.weight.dtype != dtype_of<T>) return {};
    return {{p.weight.data, const_cast<void*>(p.grad.data), p.first.data, p.second.data},
            p.weight.num_elements};
  };
  for_tensor_lists<4>(parameters.size(), ThreadPart<T>::kElementsPerBlock, entry,
                      [&]<typename List>(const List& list, unsigned num_blocks, bool is_last) {
                        launch(stream, "adamw", {dim3(num_blocks), dim3(kThreads)},
                               adamw_kernel<T, List>, list, numbers, is_last ? counter : Counter{});
                      });
}

}  // namespace

void CudaBackend::adamw(Stream& stream, const AdamW& call) {
  update_and_count(stream, call.parameters, call.scalars, [&]<typename T>(Counter counter) {
    run_adamw<T>(stream, call.parameters, call.scalars, call.options, counter);
  });
}

namespace {

// Multiplies by max_norm / (*norm + 1e-6), unless that is 1 or more.
template <typename T, typename List>
__global__ void clip_kernel(List list, const double* norm, double max_norm) {
  const double factor = max_norm / (*norm + 1e-6);
  if (factor >= 1) return;
  const Slice slice = slice_of_block(list, ThreadPart<T>::kElementsPerBlock);
  T* const x = static_cast<T*>(list.data[0][slice.tensor]);
  const ThreadPart<T> part(slice);
  Vector<T> values = part.load(x);
#pragma unroll
  for (T& value : values.at) value *= static_cast<T>(factor);
  part.store(x, values);
}

}  // namespace

void CudaBackend::clip(Stream& stream, const Clip& call) {
  const auto clip_those_of = [&]<typename T>() {
    const auto entry = [&](std::size_t i) -> TensorEntry<1> {
      if (call.tensors[i].dtype != dtype_of<T>) return {};
      return {{call.tensors[i].data}, call.tensors[i].num_elements};
    };
    for_tensor_lists<1>(call.tensors.size(), ThreadPart<T>::kElementsPerBlock, entry,
                        [&]<typename List>(const List& list, unsigned num_blocks, bool) {
                          launch(stream, "clip", {dim3(num_blocks), dim3(kThreads)},
                                 clip_kernel<T, List>, list, data_of<double>(call.norm),
                                 call.max_norm);
                        });
  };
  clip_those_of.template operator()<float>();
  clip_those_of.template operator()<double>();
}

}  // namespace lockstep::kernels::cuda
