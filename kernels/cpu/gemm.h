// Matrix products of the CPU backend.
//
// The result is cut into one tile per thread. A tile is computed as Goto and van de Geijn describe:
// a block of b is packed into panels as wide as the registers allow, then every few rows of a pass
// over it, in a kernel that keeps its part of c in registers (gemm_kernel.h). Eigen supplies the
// vector instructions, so the same source serves SSE, AVX2, AVX-512 and NEON. Every element of c is
// summed in the order of the inner dimension, cut at multiples that only depend on that dimension,
// so its bits depend neither on the threads nor on the other rows.
// Source: Goto, van de Geijn, "Anatomy of high-performance matrix multiplication", TOMS 2008.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <optional>

#include "kernels/calls.h"
#include "kernels/element_traits.h"

namespace lockstep::kernels {

// The places of a factor's rows, or of its columns, as three nested loops, the outermost first.
struct NestedStrides {
  std::array<std::size_t, 3> counts;     // rounds of each loop
  std::array<std::size_t, 3> distances;  // between two of its places, in elements
};

// A factor whose element (row, col) lies at the place of the row plus the place of the column. So
// the patches of images are read from the images themselves.
struct NestedFactor {
  NestedStrides rows;
  NestedStrides cols;
};

// One factor of a product as it lies in memory, read as it is or transposed: row-major, or nested.
template <typename T>
struct Factor {
  const T* data = nullptr;
  std::size_t leading_dimension = 0;
  Transpose transpose = Transpose::no;
  std::optional<NestedFactor> nested = {};  // then there is no leading dimension
};

// A rectangle of the result.
struct Tile {
  std::size_t row_begin = 0;
  std::size_t row_end = 0;
  std::size_t col_begin = 0;
  std::size_t col_end = 0;
};

template <typename T>
struct Product {
  Factor<T> a;     // [rows, depth] after its transposition
  Factor<T> b;     // [depth, cols], not nested
  T* c = nullptr;  // [rows, cols], row-major
  std::size_t leading_dimension = 0;
  std::size_t rows = 0;
  std::size_t cols = 0;
  std::size_t depth = 0;
  Write write = Write::overwrite;
};

// Called with a part of c whose values are final.
using FinishTile = std::function<void(const Tile&)>;

// c = a * b, or c += a * b; with depth 0 the product is zero.
// finish, if given, is called once for every part of c as soon as that part is final, while it is
// in the cache, on any thread of the device.
template <typename T>
void gemm(Stream& stream, const Product<T>& product, const FinishTile& finish = nullptr);

// The whole product in the calling thread, with the same bits.
template <typename T>
void gemm_in_thread(const Product<T>& product);

// Calls multiply() with the product, whose factors are rounded if the precision in force is bf16
// (matmul_precision.h); so the CPU imitates a GPU that stores its factors in 16 bits.
void with_rounded_factors(const Product<float>& product,
                          const std::function<void(const Product<float>&)>& multiply);

extern template void gemm_in_thread(const Product<float>&);
extern template void gemm_in_thread(const Product<double>&);
extern template void gemm(Stream&, const Product<float>&, const FinishTile&);
extern template void gemm(Stream&, const Product<double>&, const FinishTile&);

}  // namespace lockstep::kernels
