// The reductions that training does not need, by one loop for each type: product, min and max.
#include <algorithm>
#include <type_traits>

#include "engine/comm/reduce.h"
#include "engine/core/error.h"
#include "engine/core/half.h"

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

void combine_in_order(ReduceOp op, std::span<const ConstTensorView> sources, TensorView y) {
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::average:
      fail(ErrorCode::Usage, "reduce", "sums are made by the kernels (reduce_in_order)");
    case ReduceOp::product:
      return combine_any(sources, y, Product{});
    case ReduceOp::min:
      return combine_any(sources, y, Min{});
    case ReduceOp::max:
      return combine_any(sources, y, Max{});
  }
}

}  // namespace lockstep::comm
