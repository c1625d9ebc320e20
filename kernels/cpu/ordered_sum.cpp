// The hot loop of our all-reduce.
#include <concepts>
#include <type_traits>

#include "engine/core/half.h"
#include "kernels/cpu/eigen_backend.h"
#include "kernels/cpu/parallel.h"

namespace lockstep::kernels {
namespace {

// Elements summed at once: few enough that a partial sum stays in the first-level cache while the
// sources are read.
constexpr std::size_t kBlock = 1024;

template <typename T>
void sum_block(std::span<const ConstTensorView> sources, T factor, T* y, std::size_t begin,
               std::size_t length) {
  T partial[kBlock];
  const T* first = data_of<T>(sources[0]) + begin;
  LOCKSTEP_INDEPENDENT
  for (std::size_t i = 0; i < length; ++i) partial[i] = factor * first[i];
  for (std::size_t s = 1; s + 1 < sources.size(); ++s) {
    const T* next = data_of<T>(sources[s]) + begin;
    LOCKSTEP_INDEPENDENT
    for (std::size_t i = 0; i < length; ++i) partial[i] = partial[i] + factor * next[i];
  }
  const T* last = data_of<T>(sources.back()) + begin;
  LOCKSTEP_INDEPENDENT
  for (std::size_t i = 0; i < length; ++i) y[begin + i] = partial[i] + factor * last[i];
}

template <typename T>
void sum_range(std::span<const ConstTensorView> sources, T factor, T* y, std::size_t begin,
               std::size_t end) {
  if (sources.size() == 1) {
    const T* only = data_of<T>(sources[0]);
    LOCKSTEP_INDEPENDENT
    for (std::size_t i = begin; i < end; ++i) y[i] = factor * only[i];
  } else if (sources.size() == 2) {
    const T* a = data_of<T>(sources[0]);
    const T* b = data_of<T>(sources[1]);
    if (factor == T(1)) {
      LOCKSTEP_INDEPENDENT
      for (std::size_t i = begin; i < end; ++i) y[i] = a[i] + b[i];
    } else {
      LOCKSTEP_INDEPENDENT
      for (std::size_t i = begin; i < end; ++i) y[i] = factor * a[i] + factor * b[i];
    }
  } else {
    for (std::size_t i = begin; i < end; i += kBlock) {
      sum_block(sources, factor, y, i, std::min(kBlock, end - i));
    }
  }
}

// The type itself for floating-point numbers.
template <typename T>
struct Unsigned {
  using type = T;
};
template <std::integral T>
struct Unsigned<T> {
  using type = std::make_unsigned_t<T>;
};

// Added in float and rounded once.
template <typename Half>
void sum_half_range(std::span<const ConstTensorView> sources, float factor, Half* y,
                    std::size_t begin, std::size_t end) {
  float partial[kBlock];
  for (std::size_t block = begin; block < end; block += kBlock) {
    const std::size_t length = std::min(kBlock, end - block);
    const Half* first = data_of<Half>(sources[0]) + block;
    for (std::size_t i = 0; i < length; ++i) partial[i] = factor * static_cast<float>(first[i]);
    for (std::size_t s = 1; s < sources.size(); ++s) {
      const Half* next = data_of<Half>(sources[s]) + block;
      for (std::size_t i = 0; i < length; ++i) {
        partial[i] = partial[i] + factor * static_cast<float>(next[i]);
      }
    }
    for (std::size_t i = 0; i < length; ++i) y[block + i] = Half(partial[i]);
  }
}

}  // namespace

void EigenBackend::ordered_sum(Stream& stream, const OrderedSum& call) {
  check_ordered_sum(call.sources, call.factor, call.y);
  for_any_of<Bfloat16, Float16>(call.y.dtype, [&]<typename T>() {
    parallel_elements(stream, call.y.num_elements, [&](std::size_t begin, std::size_t end) {
      if constexpr (is_half<T>) {
        sum_half_range(call.sources, static_cast<float>(call.factor), data_of<T>(call.y), begin,
                       end);
      } else {
        using Wrapping = typename Unsigned<T>::type;  // integers wrap around
        sum_range(call.sources, static_cast<Wrapping>(call.factor), data_of<Wrapping>(call.y),
                  begin, end);
      }
    });
  });
}

}  // namespace lockstep::kernels
