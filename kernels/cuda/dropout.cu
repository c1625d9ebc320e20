// Dropout with the CPU's mask (kernels/cpu/dropout.cpp), bit for bit: a lane draws one Philox block
// for four neighbouring columns. Moves every element in and out, one launch.
#include <cstdint>

#include "engine/core/rng.h"
#include "kernels/cuda/checks.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/row_tiles.cuh"

namespace lockstep::kernels::cuda {
namespace {

constexpr std::uint32_t kDropout = 0x64726f70u;  // "drop", as on the CPU
constexpr std::size_t kGroup = 4;                // columns of a Philox block

__host__ __device__ std::uint32_t low(std::uint64_t value) {
  return static_cast<std::uint32_t>(value);
}
__host__ __device__ std::uint32_t high(std::uint64_t value) {
  return static_cast<std::uint32_t>(value >> 32);
}

// core's philox().
__device__ Vector<std::uint32_t> draw(std::uint64_t row, std::uint32_t block, std::uint32_t layer,
                                      std::uint64_t key) {
  std::uint32_t c0 = low(row);
  std::uint32_t c1 = high(row);
  std::uint32_t c2 = block;
  std::uint32_t c3 = layer;
  std::uint32_t key0 = low(key);
  std::uint32_t key1 = high(key);
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const std::uint32_t high0 = __umulhi(0xD2511F53u, c0);
    const std::uint32_t low0 = 0xD2511F53u * c0;
    const std::uint32_t high1 = __umulhi(0xCD9E8D57u, c2);
    const std::uint32_t low1 = 0xCD9E8D57u * c2;
    c0 = high1 ^ c1 ^ key0;
    c1 = low1;
    c2 = high0 ^ c3 ^ key1;
    c3 = low0;
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

template <typename T>
struct Dropout {
  const T* x;
  std::size_t x_leading_dimension;
  T* y;
  std::size_t y_leading_dimension;
  std::size_t rows;
  std::size_t cols;
  std::size_t in_groups;  // columns that are moved in groups: all but a tail, or none
  std::uint64_t key;
  std::uint64_t first_row;
  std::uint32_t layer;
  std::uint32_t last_dropped;  // the largest word that drops its element
  T factor;
};

template <typename T>
__global__ void dropout_kernel(Dropout<T> call) {
  for_row_tiles(call.rows, call.cols, [&](std::size_t row, std::size_t begin, std::size_t end) {
    const T* const x = call.x + row * call.x_leading_dimension;
    T* const y = call.y + row * call.y_leading_dimension;
    for (std::size_t j = begin + threadIdx.x % kWarp * kGroup; j < end; j += kWarp * kGroup) {
      const bool whole = j + kGroup <= call.in_groups;
      Vector<T, kGroup> values = {};
      if (whole) {
        values = load_vector<kGroup>(x + j);
      } else {
#pragma unroll
        for (std::size_t k = 0; k < kGroup; ++k) {
          if (j + k < end) values.at[k] = x[j + k];
        }
      }
      const auto words =
          draw(call.first_row + row, static_cast<std::uint32_t>(j / kGroup), call.layer, call.key);
#pragma unroll
      for (std::size_t k = 0; k < kGroup; ++k) {
        values.at[k] *= words.at[k] <= call.last_dropped ? T(0) : call.factor;
      }
      if (whole) {
        store_vector(y + j, values);
      } else {
#pragma unroll
        for (std::size_t k = 0; k < kGroup; ++k) {
          if (j + k < end) y[j + k] = values.at[k];
        }
      }
    }
  });
}

// Whether groups of kGroup elements are aligned in every row.
template <typename T>
bool has_aligned_groups(const T* data, std::size_t leading_dimension) {
  return is_aligned(data, kGroup * sizeof(T)) && leading_dimension % kGroup == 0;
}

std::uint64_t mask_key(const DropoutMask& mask) {
  const PhiloxBlock block = philox({low(mask.step), high(mask.step), kDropout, 0}, mask.seed);
  return static_cast<std::uint64_t>(block[1]) << 32 | block[0];
}

}  // namespace

void CudaBackend::dropout(Stream& stream, const DropoutMask& mask, ConstMatrixView x,
                          MatrixView y) {
  require_matrix("dropout", "y", y, x.dtype, x.rows, x.cols);
  if (!(mask.probability >= 0 && mask.probability <= 1)) {
    fail_probability("dropout", mask.probability);
  }
  const auto threshold = static_cast<std::uint64_t>(mask.probability * 0x1p32);
  if (threshold == 0) {
    if (x.data != y.data) copy_matrix(stream, x, y);
    return;
  }
  if (x.rows == 0 || x.cols == 0) return;
  for_floating(x.dtype, "dropout", [&]<typename T>() {
    const bool in_groups = has_aligned_groups(data_of<T>(x), x.leading_dimension) &&
                           has_aligned_groups(data_of<T>(y), y.leading_dimension);
    launch(stream, "dropout", row_tiles(x.rows, x.cols), dropout_kernel<T>,
           {.x = data_of<T>(x),
            .x_leading_dimension = x.leading_dimension,
            .y = data_of<T>(y),
            .y_leading_dimension = y.leading_dimension,
            .rows = x.rows,
            .cols = x.cols,
            .in_groups = in_groups ? x.cols / kGroup * kGroup : 0,
            .key = mask_key(mask),
            .first_row = mask.first_row,
            .layer = mask.layer,
            .last_dropped = static_cast<std::uint32_t>(threshold - 1),
            .factor = static_cast<T>(mask.probability < 1 ? 1 / (1 - mask.probability) : 0)});
  });
}

}  // namespace lockstep::kernels::cuda
