// Matrix products of the CPU backend, cut into tiles that the threads of a device share.
//
// Each tile of the result is one single-threaded Eigen product: Eigen's own threading (OpenMP)
// would start a team per calling thread and is invisible to sanitizers.
#pragma once

#include <functional>

#include "kernels/backend.h"

namespace lockstep::kernels {

// One factor of a product as it lies in memory: row-major, to be read as it is or transposed.
template <typename T>
struct Factor {
  const T* data = nullptr;
  std::size_t leading_dimension = 0;
  Transpose transpose = Transpose::no;
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
  Factor<T> b;     // [depth, cols]
  T* c = nullptr;  // [rows, cols], row-major
  std::size_t leading_dimension = 0;
  std::size_t rows = 0;
  std::size_t cols = 0;
  std::size_t depth = 0;
  Write write = Write::overwrite;
};

// c = a * b, or c += a * b; with depth 0 the product is zero.
// finish, if given, is called once for every part of c as soon as that part is final, while it is
// in the cache; on any thread of the device.
template <typename T>
void gemm(Stream& stream, const Product<T>& product,
          const std::function<void(const Tile&)>& finish = nullptr);

extern template void gemm(Stream&, const Product<float>&, const std::function<void(const Tile&)>&);
extern template void gemm(Stream&, const Product<double>&, const std::function<void(const Tile&)>&);

}  // namespace lockstep::kernels
