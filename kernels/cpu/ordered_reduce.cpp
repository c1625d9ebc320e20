// The hot loop of our all-reduce.
#include <concepts>
#include <cstring>
#include <type_traits>

#include "engine/core/half.h"
#include "kernels/cpu/eigen_backend.h"
#include "kernels/cpu/parallel.h"

namespace lockstep::kernels {
namespace {

// Elements combined at once: few enough that a partial result stays in the first-level cache while
// the sources are read.
constexpr std::size_t kBlock = 1024;

// Integers wrap around.
struct Plus {
  template <typename T>
  T operator()(T a, T b) const {
    return a + b;
  }
  template <std::integral T>
  T operator()(T a, T b) const {
    using Unsigned = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<Unsigned>(a) + static_cast<Unsigned>(b));
  }
};
struct Times {
  template <typename T>
  T operator()(T a, T b) const {
    return a * b;
  }
  template <std::integral T>
  T operator()(T a, T b) const {
    using Unsigned = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<Unsigned>(a) * static_cast<Unsigned>(b));
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

// The elements of one source, multiplied by the factor: halves as floats.
template <typename T>
struct Source {
  using Value = ArithmeticOf<T>;

  const T* elements;
  Value factor;

  Value operator[](std::size_t i) const { return Times{}(factor, static_cast<Value>(elements[i])); }
};

template <typename T, typename Combine>
void combine_block(const auto& source, std::size_t num_sources, T* y, std::size_t begin,
                   std::size_t length, Combine combine) {
  ArithmeticOf<T> partial[kBlock];
  const Source<T> first = source(0);
  LOCKSTEP_INDEPENDENT
  for (std::size_t i = 0; i < length; ++i) partial[i] = first[begin + i];
  for (std::size_t s = 1; s + 1 < num_sources; ++s) {
    const Source<T> next = source(s);
    LOCKSTEP_INDEPENDENT
    for (std::size_t i = 0; i < length; ++i) partial[i] = combine(partial[i], next[begin + i]);
  }
  const Source<T> last = source(num_sources - 1);
  LOCKSTEP_INDEPENDENT
  for (std::size_t i = 0; i < length; ++i) {
    y[begin + i] = static_cast<T>(combine(partial[i], last[begin + i]));
  }
}

template <typename T, typename Combine>
void combine_range(const OrderedReduce& call, std::size_t begin, std::size_t end, Combine combine) {
  const auto factor = static_cast<ArithmeticOf<T>>(call.factor);
  const auto source = [&](std::size_t s) { return Source<T>{data_of<T>(call.sources[s]), factor}; };
  T* const y = data_of<T>(call.y);
  if (call.sources.size() == 1) {
    const Source<T> only = source(0);
    LOCKSTEP_INDEPENDENT
    for (std::size_t i = begin; i < end; ++i) y[i] = static_cast<T>(only[i]);
  } else if (call.sources.size() == 2 && call.factor == 1) {
    const T* const a = source(0).elements;
    const T* const b = source(1).elements;
    using Value = ArithmeticOf<T>;
    LOCKSTEP_INDEPENDENT
    for (std::size_t i = begin; i < end; ++i) {
      y[i] = static_cast<T>(combine(static_cast<Value>(a[i]), static_cast<Value>(b[i])));
    }
  } else if (call.sources.size() == 2) {
    const Source<T> a = source(0), b = source(1);
    LOCKSTEP_INDEPENDENT
    for (std::size_t i = begin; i < end; ++i) y[i] = static_cast<T>(combine(a[i], b[i]));
  } else {
    for (std::size_t i = begin; i < end; i += kBlock) {
      combine_block(source, call.sources.size(), y, i, std::min(kBlock, end - i), combine);
    }
  }
}

template <typename Combine>
void combine_elements(Stream& stream, const OrderedReduce& call, Combine combine) {
  for_any_of<Bfloat16, Float16>(call.y.dtype, [&]<typename T>() {
    parallel_elements(stream, call.y.num_elements, [&](std::size_t begin, std::size_t end) {
      combine_range<T>(call, begin, end, combine);
    });
  });
}

}  // namespace

void EigenBackend::ordered_reduce(Stream& stream, const OrderedReduce& call) {
  check_ordered_reduce(call);
  switch (call.op) {
    case ReduceOp::sum:
    case ReduceOp::average:
      combine_elements(stream, call, Plus{});
      break;
    case ReduceOp::product:
      combine_elements(stream, call, Times{});
      break;
    case ReduceOp::min:
      combine_elements(stream, call, Min{});
      break;
    case ReduceOp::max:
      combine_elements(stream, call, Max{});
      break;
  }
  for (const TensorView& copy : call.copies) {
    std::memcpy(copy.data, call.y.data, call.y.num_bytes());
  }
}

}  // namespace lockstep::kernels
