// Kernels that go through elements one by one: y[i] = op(x0[i], x1[i], ...), and passes over the
// rows of a matrix. Neighbouring threads take neighbouring elements, which the GPU reads together.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "engine/core/half.h"
#include "engine/core/views.h"
#include "engine/runtime/cuda/device_fault.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/tensor_core.cuh"

namespace lockstep::kernels::cuda {

inline constexpr unsigned kThreads = 256;  // in a block, unless a kernel says otherwise
inline constexpr unsigned kWarp = 32;

// Elements of T in 16 bytes: the pieces in which a thread reads memory fastest.
template <typename T>
inline constexpr std::size_t kWidth = 16 / sizeof(T);

template <typename T, std::size_t kElements = kWidth<T>>
struct alignas(sizeof(T) * kElements) Vector {
  T at[kElements];
};

template <std::size_t kElements, typename T>
__device__ Vector<T, kElements> load_vector(const T* from) {
  return *reinterpret_cast<const Vector<T, kElements>*>(from);
}

template <typename T, std::size_t kElements>
__device__ void store_vector(T* to, const Vector<T, kElements>& values) {
  *reinterpret_cast<Vector<T, kElements>*>(to) = values;
}

// Elements i = 0, 1, ...: op(i, number(x0.at[i]), number(x1.at[i]), ...), rounded to T. The
// instruction for pairs of bfloat16 makes the bits of Bfloat16(), but for those of a NaN, in half
// an instruction instead of six.
template <typename T, std::size_t kElements, typename Op, typename... Inputs>
__device__ Vector<T, kElements> mapped(const Op& op, const Inputs&... x) {
  if constexpr (std::is_same_v<T, Bfloat16> && kElements % 2 == 0 && kHasTensorCores) {
    Vector<unsigned, kElements / 2> pairs;
#pragma unroll
    for (std::size_t i = 0; i < kElements; i += 2) {
      pairs.at[i / 2] =
          pair_of_bfloat16(op(i, number(x.at[i])...), op(i + 1, number(x.at[i + 1])...));
    }
    return __builtin_bit_cast(Vector<T, kElements>, pairs);
  } else {
    Vector<T, kElements> elements;
#pragma unroll
    for (std::size_t i = 0; i < kElements; ++i) {
      elements.at[i] = static_cast<T>(op(i, number(x.at[i])...));
    }
    return elements;
  }
}

__host__ __device__ inline bool is_aligned(const void* pointer, std::size_t num_bytes = 16) {
  return reinterpret_cast<std::uintptr_t>(pointer) % num_bytes == 0;
}

// The place of the calling thread among all threads of a one-dimensional launch, and their number.
__device__ inline std::size_t global_thread() {
  return std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
}
__device__ inline std::size_t num_global_threads() {
  return std::size_t{gridDim.x} * blockDim.x;
}

// Calls body(i) for i = begin, begin + step, ... below end. Whole batches are loops of a fixed
// count, whose reads the compiler gathers at their beginning, unless body writes; with a test for
// the end after every call, one read would wait for the other.
template <std::size_t kBatch, typename Body>
__device__ void for_steps(std::size_t begin, std::size_t end, std::size_t step, const Body& body) {
  std::size_t i = begin;
  for (; i + (kBatch - 1) * step < end; i += kBatch * step) {
#pragma unroll
    for (std::size_t k = 0; k < kBatch; ++k) body(i + k * step);
  }
#pragma unroll 1
  for (; i < end; i += step) body(i);
}

// Pieces of 16 bytes of y up to in_pieces, then single elements. All inputs of a piece are read
// before it is written.
template <typename T, typename Op, typename... Inputs>
__global__ void elementwise_kernel(T* y, std::size_t in_pieces, std::size_t num_elements, Op op,
                                   Inputs... x) {
  constexpr std::size_t kWide = kWidth<T>;
  if constexpr (requires { op.load(); }) op.load();
  const std::size_t step = num_global_threads();
  const auto of_piece = [&](std::size_t, auto... numbers) { return op(numbers...); };
#pragma unroll 1
  for (std::size_t i = global_thread() * kWide; i < in_pieces; i += step * kWide) {
    store_vector(y + i, mapped<T, kWide>(of_piece, load_vector<kWide>(x + i)...));
  }
#pragma unroll 1
  for (std::size_t i = in_pieces + global_thread(); i < num_elements; i += step) {
    y[i] = static_cast<T>(op(number(x[i])...));
  }
}

// An operation is a functor `operator()(x0, x1, ...) const` for the device, which gets and returns
// numbers: float for a half. A member load(), if it has one, reads values from device memory once
// per thread. y may be one of the inputs.
// One launch; none for no elements.
template <typename T, typename Op, typename... Inputs>
void launch_elementwise(runtime::Stream& stream, const char* operation, T* y,
                        std::size_t num_elements, Op op, const Inputs*... x) {
  if (num_elements == 0) return;
  constexpr std::size_t kWide = kWidth<T>;
  const bool is_wide = is_aligned(y) && (... && is_aligned(x, sizeof(Inputs) * kWide));
  const std::size_t in_pieces = is_wide ? num_elements / kWide * kWide : 0;
  launch(stream, operation,
         covering(std::max(in_pieces / kWide, num_elements - in_pieces), kThreads),
         elementwise_kernel<T, Op, const Inputs*...>, y, in_pieces, num_elements, op, x...);
}

// --- rows of a matrix: a warp takes a piece of one row at a time

// A matrix as a kernel's argument: m[row][column].
template <typename T>
struct Rows {
  T* data = nullptr;
  std::size_t leading_dimension = 0;

  __device__ T* operator[](std::size_t row) const { return data + row * leading_dimension; }
};

template <typename T, typename Void>
auto rows_of(const BasicMatrixView<Void>& view) {
  using Element = std::conditional_t<std::is_const_v<Void>, const T, T>;
  return Rows<Element>{static_cast<Element*>(view.data), view.leading_dimension};
}

// Calls body(row, lane) with kGroup threads of a block for each row: a whole warp.
template <unsigned kGroup = kWarp, typename Body>
__device__ void for_rows(std::size_t rows, const Body& body) {
  const std::size_t step = num_global_threads() / kGroup;
  for (std::size_t row = global_thread() / kGroup; row < rows; row += step) {
    body(row, threadIdx.x % kGroup);
  }
}

inline constexpr std::size_t kTileColumns = 128;  // so few that small matrices keep many warps busy

// A launch with which for_row_tiles and for_matrix reach every element.
inline LaunchShape row_tiles(std::size_t rows, std::size_t cols,
                             std::size_t tile_columns = kTileColumns) {
  return covering(rows * ((cols + tile_columns - 1) / tile_columns) * kWarp, kThreads);
}

// Calls body(row, begin, end) for columns begin ... end - 1 of a row with a whole warp, whose lanes
// all get the same arguments.
template <std::size_t kColumns = kTileColumns, typename Body>
__device__ void for_row_tiles(std::size_t rows, std::size_t cols, const Body& body) {
  const std::size_t tiles = (cols + kColumns - 1) / kColumns;
  const std::size_t num_warps = num_global_threads() / kWarp;
  for (std::size_t i = global_thread() / kWarp; i < rows * tiles; i += num_warps) {
    const std::size_t begin = i % tiles * kColumns;
    body(i / tiles, begin, begin + kColumns < cols ? begin + kColumns : cols);
  }
}

// Calls body(row, column) for every element.
template <typename Body>
__device__ void for_matrix(std::size_t rows, std::size_t cols, const Body& body) {
  for_row_tiles(rows, cols, [&](std::size_t row, std::size_t begin, std::size_t end) {
#pragma unroll 4
    for (std::size_t j = begin + threadIdx.x % kWarp; j < end; j += kWarp) body(row, j);
  });
}

// --- wrong input (engine/runtime/cuda/device_fault.h)

using runtime::cuda::DeviceFault;
using runtime::cuda::FaultKind;

// Reports to the host. Only the first fault is kept.
__device__ inline void report_fault(DeviceFault* fault, FaultKind kind, std::int64_t value,
                                    std::size_t limit) {
  if (atomicCAS(&fault->kind, 0, static_cast<int>(kind)) != 0) return;
  volatile DeviceFault* const seen_by_host = fault;
  seen_by_host->value = value;
  seen_by_host->limit = static_cast<std::int64_t>(limit);
  __threadfence_system();
  seen_by_host->is_written = 1;
}

// True for 0 <= value < limit.
__device__ inline bool is_within(std::int64_t value, std::size_t limit) {
  return static_cast<std::size_t>(value) < limit;
}

}  // namespace lockstep::kernels::cuda
