// Spreads the CPU kernels' loops over the threads of a device.
//
// If results are combined, work is cut into fixed blocks, so that sums have the same bits with any
// number of threads.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "engine/runtime/logical_device.h"
#include "engine/runtime/stream.h"

// LOCKSTEP_INDEPENDENT stands before a loop none of whose iterations reads what another one writes:
// the compiler may then vectorise it without checking if its pointers overlap. They may be equal,
// for example if y is x.
#ifdef __clang__
#define LOCKSTEP_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define LOCKSTEP_INDEPENDENT _Pragma("GCC ivdep")
#endif

namespace lockstep::kernels {

// So many elements (or operations of about that cost) are worth a hand-over to another thread.
inline constexpr std::size_t kParallelGrain = 32 * 1024;

// Calls body(begin, end) for ranges that cover 0 ... count - 1, at most one per thread. A range
// holds at least `grain` items unless it is the only one, and starts at a multiple of 64.
template <typename Body>
void parallel_ranges(runtime::Stream& stream, std::size_t count, std::size_t grain,
                     const Body& body) {
  runtime::ThreadPool& threads = stream.device().threads();
  const std::size_t wanted =
      std::min(threads.num_threads(), count / std::max<std::size_t>(grain, 1));
  if (wanted <= 1) {
    if (count > 0) body(std::size_t{0}, count);
    return;
  }
  const std::size_t length = ((count + wanted - 1) / wanted + 63) / 64 * 64;
  threads.parallel_for((count + length - 1) / length,
                       [&](std::size_t i) { body(i * length, std::min(count, (i + 1) * length)); });
}

// The same, with elements as items.
template <typename Body>
void parallel_elements(runtime::Stream& stream, std::size_t num_elements, const Body& body) {
  parallel_ranges(stream, num_elements, kParallelGrain, body);
}

// The same for rows of a matrix: body(row_begin, row_end), cut anywhere.
template <typename Body>
void parallel_rows(runtime::Stream& stream, std::size_t rows, std::size_t cols, const Body& body) {
  runtime::ThreadPool& threads = stream.device().threads();
  const std::size_t wanted = std::min({threads.num_threads(), rows, rows * cols / kParallelGrain});
  if (wanted <= 1) {
    if (rows > 0) body(std::size_t{0}, rows);
    return;
  }
  threads.parallel_for(wanted,
                       [&](std::size_t i) { body(i * rows / wanted, (i + 1) * rows / wanted); });
}

// Calls body(block, begin, end) for blocks of exactly block_size items (the last may be shorter), a
// cut that does not depend on the threads. cost: of one item, in elements.
template <typename Body>
void parallel_blocks(runtime::Stream& stream, std::size_t count, std::size_t block_size,
                     std::size_t cost, const Body& body) {
  const std::size_t num_blocks = (count + block_size - 1) / block_size;
  const auto one = [&](std::size_t block) {
    body(block, block * block_size, std::min(count, (block + 1) * block_size));
  };
  if (count * cost < 2 * kParallelGrain) {
    for (std::size_t block = 0; block < num_blocks; ++block) one(block);
  } else {
    stream.device().threads().parallel_for(num_blocks, one);
  }
}

// Working memory of the calling thread, kept between calls. A second call ends the use of the
// first.
template <typename T>
T* thread_scratch(std::size_t num_elements) {
  thread_local std::vector<T> memory;
  if (memory.size() < num_elements) memory.resize(num_elements);
  return memory.data();
}

// Rows whose sum is formed before it is added to the total. This limits the rounding error, and
// threads share work in such units.
inline constexpr std::size_t kRowsPerSum = 64;

// sums[j] = the sum over all rows of row(i)[j], j < cols, in an order that only depends on the
// shape. row(i) returns a pointer to cols elements.
template <typename T, typename Row>
void column_sums(runtime::Stream& stream, std::size_t rows, std::size_t cols, T* sums,
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
  std::fill(sums, sums + cols, T(0));
  for (std::size_t block = 0; block < num_blocks; ++block) {
    const T* partial = partials + block * cols;
    for (std::size_t j = 0; j < cols; ++j) sums[j] += partial[j];
  }
}

}  // namespace lockstep::kernels
