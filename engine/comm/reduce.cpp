#include "engine/comm/reduce.h"

#include <algorithm>
#include <type_traits>

#include "engine/core/error.h"
#include "engine/core/half.h"
#include "kernels/calls.h"

namespace lockstep::comm {
namespace {

// Elements combined at once, so that a partial result stays in the first-level cache.
constexpr std::size_t kBlock = 1024;

struct Product {
  template <typename T>
  T operator()(T a, T b) const {
    if constexpr (std::is_integral_v<T>) {
      using Unsigned = std::make_unsigned_t<T>;
      return static_cast<T>(static_cast<Unsigned>(a) * static_cast<Unsigned>(b));
    } else {
      return a * b;
    }
  }
};
struct Min {
  template <typename T>
  T operator()(T a, T b) const {
    return b < a || b != b ? b : a;
  }
};
struct Max {
  template <typename T>
  T operator()(T a, T b) const {
    return b > a || b != b ? b : a;
  }
};

template <typename T, typename Combine>
void combine_all(std::span<const ConstTensorView> sources, TensorView y, Combine combine) {
  using Value = ArithmeticOf<T>;
  Value partial[kBlock];
  for (std::size_t begin = 0; begin < y.num_elements; begin += kBlock) {
    const std::size_t length = std::min(kBlock, y.num_elements - begin);
    const T* first = static_cast<const T*>(sources[0].data) + begin;
    for (std::size_t i = 0; i < length; ++i) partial[i] = static_cast<Value>(first[i]);
    for (std::size_t s = 1; s < sources.size(); ++s) {
      const T* next = static_cast<const T*>(sources[s].data) + begin;
      for (std::size_t i = 0; i < length; ++i) {
        partial[i] = combine(partial[i], static_cast<Value>(next[i]));
      }
    }
    T* out = static_cast<T*>(y.data) + begin;
    for (std::size_t i = 0; i < length; ++i) out[i] = static_cast<T>(partial[i]);
  }
}

template <typename Combine>
void combine_any(std::span<const ConstTensorView> sources, TensorView y, Combine combine) {
  switch (y.dtype) {
    case DType::float32:
      return combine_all<float>(sources, y, combine);
    case DType::float64:
      return combine_all<double>(sources, y, combine);
    case DType::bfloat16:
      return combine_all<Bfloat16>(sources, y, combine);
    case DType::float16:
      return combine_all<Float16>(sources, y, combine);
    case DType::int32:
      return combine_all<std::int32_t>(sources, y, combine);
    case DType::int64:
      return combine_all<std::int64_t>(sources, y, combine);
    default:
      fail(ErrorCode::DType, "reduce", "takes no {}", lockstep::to_string(y.dtype));
  }
}

}  // namespace

void reduce_in_order(runtime::Stream& stream, ReduceOp op, double factor,
                     std::span<const ConstTensorView> sources, TensorView y) {
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::average:
      return kernels::backend(DeviceType::cpu).ordered_sum(stream, {sources, factor, y});
    case ReduceOp::product:
      return combine_any(sources, y, Product{});
    case ReduceOp::min:
      return combine_any(sources, y, Min{});
    case ReduceOp::max:
      return combine_any(sources, y, Max{});
  }
}

void receive_chunk(const plan::Receive& receive, int rank, const Reduction& reduction,
                   const std::function<const void*(int peer)>& source_of, TensorView mine,
                   TensorView out) {
  const auto values_of = [&](int peer) {
    return ConstTensorView{source_of(peer), mine.dtype, mine.num_elements};
  };
  if (receive.combine == plan::Combine::copy) {
    kernels::backend(DeviceType::cpu)
        .copy(reduction.stream, {values_of(receive.from_ranks[0]), out});
    return;
  }
  thread_local std::vector<ConstTensorView> sources;
  sources.clear();
  bool has_mine = false;
  for (const int from : receive.from_ranks) {
    if (!has_mine && from > rank) {
      sources.push_back(mine);
      has_mine = true;
    }
    sources.push_back(values_of(from));
  }
  if (!has_mine) sources.push_back(mine);
  reduce_in_order(reduction.stream, reduction.op, 1.0, sources, out);
}

void multiply(runtime::Stream& stream, double factor, TensorView values) {
  const ConstTensorView source = values;
  if (factor != 1) reduce_in_order(stream, ReduceOp::sum, factor, std::span(&source, 1), values);
}

double factor_of(ReduceOp op, int world_size) {
  return op == ReduceOp::average ? 1.0 / world_size : 1.0;
}

}  // namespace lockstep::comm
