// The innermost part of a matrix product: a few rows times a panel of b, summed in registers.
#pragma once

#define EIGEN_DONT_PARALLELIZE
#include <Eigen/Core>
#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <utility>

#include "kernels/calls.h"

namespace lockstep::kernels {

template <typename T>
using Vector = typename Eigen::internal::packet_traits<T>::type;

// Elements of one vector register.
template <typename T>
inline constexpr std::size_t kWidth = Eigen::internal::unpacket_traits<Vector<T>>::size;

// A panel of b is two registers wide; the sums of up to kPanelRows rows fill all registers but four
// (two for b, one for a, one spare).
template <typename T>
inline constexpr std::size_t kPanelCols = 2 * kWidth<T>;
inline constexpr std::size_t kPanelRows = (EIGEN_ARCH_DEFAULT_NUMBER_OF_REGISTERS - 4) / 2;
// For a panel of one vector, twice as many rows fill them.
inline constexpr std::size_t kNarrowRows = 2 * kPanelRows;

// The most inner steps between two visits to c.
inline constexpr std::size_t kMaxDepth = 384;
// The distance between two packed rows of a. It is not a multiple of 4096 bytes, so that equal
// columns of a panel lie in different sets of the cache.
inline constexpr std::size_t kPackedRow = kMaxDepth + 16;

// The way to find element (row i, step p) of a.
enum class RowLayout {
  packed,    // a[i * kPackedRow + p]
  strided,   // a[p * stride + i]: a transposed factor
  scattered  // rows[i][offset of step p]: a nested factor, such as the patches of images
};

// Inner steps whose elements are `stride` apart; the first one is at `offset`.
struct Stretch {
  std::size_t offset = 0;
  std::size_t count = 0;
};

template <typename T>
struct KernelCall {
  const T* a = nullptr;
  std::size_t stride = 0;                   // a's, unless it is packed
  const T* const* rows = nullptr;           // scattered: where each row of a begins
  std::span<const Stretch> stretches = {};  // scattered: the steps, depth in all
  const T* b = nullptr;                     // packed panel: depth steps of one or two vectors
  std::size_t depth = 0;
  T* c = nullptr;
  std::size_t leading_dimension = 0;
  Write write = Write::overwrite;
};

// The sums of Rows rows for a panel.
template <typename T, std::size_t Rows, std::size_t Vectors>
using Sums = Vector<T>[Rows][Vectors];

// Adds one step: element(i) of a times the panel's vectors at b.
template <typename T, std::size_t Rows, std::size_t Vectors, typename Element>
[[gnu::always_inline]] inline void add_step(Sums<T, Rows, Vectors>& sums, const T* b,
                                            const Element& element) {
  Vector<T> right[Vectors];
#pragma GCC unroll 2
  for (std::size_t v = 0; v < Vectors; ++v) {
    right[v] = Eigen::internal::pload<Vector<T>>(b + v * kWidth<T>);
  }
#pragma GCC unroll 32
  for (std::size_t i = 0; i < Rows; ++i) {
    const auto left = Eigen::internal::pset1<Vector<T>>(element(i));
#pragma GCC unroll 2
    for (std::size_t v = 0; v < Vectors; ++v) {
      sums[i][v] = Eigen::internal::pmadd(left, right[v], sums[i][v]);
    }
  }
}

// c [Rows, Vectors * kWidth] = (or +=) a * b.
template <typename T, RowLayout Layout, std::size_t Rows, std::size_t Vectors>
void run_kernel(const KernelCall<T>& call) {
  Sums<T, Rows, Vectors> sums;
#pragma GCC unroll 32
  for (std::size_t i = 0; i < Rows; ++i) {
#pragma GCC unroll 2
    for (std::size_t v = 0; v < Vectors; ++v) {
      sums[i][v] = Eigen::internal::pset1<Vector<T>>(T(0));
    }
  }
  const T* b = call.b;
  if constexpr (Layout == RowLayout::scattered) {
    std::array<const T*, Rows> rows;
    std::copy_n(call.rows, Rows, rows.begin());
    for (const Stretch& stretch : call.stretches) {
      std::size_t at = stretch.offset;
      for (std::size_t p = 0; p < stretch.count; ++p) {
        add_step<T, Rows, Vectors>(sums, b, [&](std::size_t i) { return rows[i][at]; });
        at += call.stride;
        b += Vectors * kWidth<T>;
      }
    }
  } else {
    constexpr bool kIsPacked = Layout == RowLayout::packed;
    const T* a = call.a;
    for (std::size_t p = 0; p < call.depth; ++p) {
      add_step<T, Rows, Vectors>(sums, b,
                                 [&](std::size_t i) { return a[kIsPacked ? i * kPackedRow : i]; });
      a += kIsPacked ? 1 : call.stride;
      b += Vectors * kWidth<T>;
    }
  }
#pragma GCC unroll 32
  for (std::size_t i = 0; i < Rows; ++i) {
#pragma GCC unroll 2
    for (std::size_t v = 0; v < Vectors; ++v) {
      T* to = call.c + i * call.leading_dimension + v * kWidth<T>;
      Vector<T> value = sums[i][v];
      if (call.write == Write::accumulate) {
        value = Eigen::internal::padd(value, Eigen::internal::ploadu<Vector<T>>(to));
      }
      Eigen::internal::pstoreu(to, value);
    }
  }
}

template <typename T>
using Kernel = void (*)(const KernelCall<T>&);

// kernels[rows - 1] computes that many rows.
template <typename T, RowLayout Layout, std::size_t Vectors, std::size_t... Row>
constexpr std::array<Kernel<T>, sizeof...(Row)> make_kernels(std::index_sequence<Row...>) {
  return {&run_kernel<T, Layout, Row + 1, Vectors>...};
}
template <typename T, RowLayout Layout, std::size_t Vectors>
inline constexpr auto kKernels =
    make_kernels<T, Layout, Vectors>(std::make_index_sequence<kPanelRows>());

template <typename T>
inline constexpr auto kNarrowKernels =
    make_kernels<T, RowLayout::scattered, 1>(std::make_index_sequence<kNarrowRows>());

}  // namespace lockstep::kernels
