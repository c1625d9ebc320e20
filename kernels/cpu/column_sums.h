// Sums over the rows of a matrix, in an order fixed by its shape.
#pragma once

#include "kernels/backend.h"
#include "kernels/cpu/parallel.h"

namespace lockstep::kernels {

// Rows whose sum is formed before it is added to the total: bounds the rounding error and is the
// unit that threads share.
inline constexpr std::size_t kRowsPerSum = 64;

// sums[j] = (or +=) the sum over all rows of row(i)[j], j < cols. row(i) returns a pointer to cols
// elements and is called once for every row, in order within a block of kRowsPerSum rows, on any
// thread; so it may also compute that row.
template <typename T, typename Row>
void column_sums(Stream& stream, std::size_t rows, std::size_t cols, T* sums, Write write,
                 const Row& row) {
  const std::size_t num_blocks = (rows + kRowsPerSum - 1) / kRowsPerSum;
  T* partials = thread_scratch<T>(num_blocks * cols);
  parallel_blocks(stream, rows, kRowsPerSum, cols,
                  [&](std::size_t block, std::size_t begin, std::size_t end) {
                    T* partial = partials + block * cols;
                    std::fill(partial, partial + cols, T(0));
                    for (std::size_t i = begin; i < end; ++i) {
                      const T* values = row(i);
                      for (std::size_t j = 0; j < cols; ++j) partial[j] += values[j];
                    }
                  });
  if (write == Write::overwrite) std::fill(sums, sums + cols, T(0));
  for (std::size_t block = 0; block < num_blocks; ++block) {
    const T* partial = partials + block * cols;
    for (std::size_t j = 0; j < cols; ++j) sums[j] += partial[j];
  }
}

}  // namespace lockstep::kernels
