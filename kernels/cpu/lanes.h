// Sums and maxima of consecutive memory in vector registers, in an order that only depends on the
// length. A compiler may not reorder a sum, so it does not vectorise such loops itself.
#pragma once

#include "kernels/cpu/gemm_kernel.h"

namespace lockstep::kernels {

// The sum of a[i] * b[i].
template <typename T>
T dot_of(const T* a, const T* b, std::size_t count) {
  using namespace Eigen::internal;
  auto first = pset1<Vector<T>>(T(0));
  auto second = first;
  std::size_t i = 0;
  for (; i + 2 * kWidth<T> <= count; i += 2 * kWidth<T>) {
    first = pmadd(ploadu<Vector<T>>(a + i), ploadu<Vector<T>>(b + i), first);
    second =
        pmadd(ploadu<Vector<T>>(a + i + kWidth<T>), ploadu<Vector<T>>(b + i + kWidth<T>), second);
  }
  T total = predux(padd(first, second));
  for (; i < count; ++i) total += a[i] * b[i];
  return total;
}

template <typename T>
T sum_of(const T* x, std::size_t count) {
  using namespace Eigen::internal;
  auto first = pset1<Vector<T>>(T(0));
  auto second = first;
  std::size_t i = 0;
  for (; i + 2 * kWidth<T> <= count; i += 2 * kWidth<T>) {
    first = padd(first, ploadu<Vector<T>>(x + i));
    second = padd(second, ploadu<Vector<T>>(x + i + kWidth<T>));
  }
  T total = predux(padd(first, second));
  for (; i < count; ++i) total += x[i];
  return total;
}

// If there is a NaN, it may or may not be returned. REQUIRES: count > 0.
template <typename T>
T max_of(const T* x, std::size_t count) {
  using namespace Eigen::internal;
  auto largest = pset1<Vector<T>>(x[0]);
  std::size_t i = 0;
  for (; i + kWidth<T> <= count; i += kWidth<T>) {
    largest = pmax(largest, ploadu<Vector<T>>(x + i));
  }
  T result = predux_max(largest);
  for (; i < count; ++i) result = x[i] > result ? x[i] : result;
  return result;
}

}  // namespace lockstep::kernels
