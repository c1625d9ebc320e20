// Dropout with the mask of kernels/dropout_draw.h: a lane draws one Philox block for four
// neighbouring columns. Reads and writes every element once, in one launch.
#include <cstdint>

#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/element_types.cuh"
#include "kernels/cuda/elementwise.cuh"
#include "kernels/dropout_draw.h"

namespace lockstep::kernels::cuda {
namespace {

constexpr std::size_t kGroup = 4;  // columns of a Philox block

// The same as core's philox().
__device__ Vector<std::uint32_t> draw(std::uint64_t row, std::uint32_t block, std::uint32_t layer,
                                      std::uint64_t key) {
  std::uint32_t c0 = static_cast<std::uint32_t>(row);
  std::uint32_t c1 = static_cast<std::uint32_t>(row >> 32);
  std::uint32_t c2 = block;
  std::uint32_t c3 = layer;
  std::uint32_t key0 = static_cast<std::uint32_t>(key);
  std::uint32_t key1 = static_cast<std::uint32_t>(key >> 32);
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

// The same key as dropout_draw() computes.
__device__ std::uint64_t key_of_step(std::uint64_t step, std::uint64_t seed) {
  const auto words = draw(step, kDropoutKeys, 0, seed);
  return static_cast<std::uint64_t>(words.at[1]) << 32 | words.at[0];
}

// key_step: if set, the key comes from this step and the seed instead.
template <typename X>
__global__ void dropout_kernel(std::size_t rows, std::size_t cols, Rows<const X> x_rows,
                               Rows<X> y_rows, DropoutDraw drawn, DropoutMask mask,
                               const std::int64_t* key_step) {
  const std::uint64_t key =
      key_step ? key_of_step(static_cast<std::uint64_t>(*key_step), mask.seed) : drawn.key;
  using T = ArithmeticOf<X>;
  const T factor = static_cast<T>(drawn.factor);
  for_row_tiles(rows, cols, [&](std::size_t row, std::size_t begin, std::size_t end) {
    const X* const x = x_rows[row];
    X* const y = y_rows[row];
    for (std::size_t j = begin + threadIdx.x % kWarp * kGroup; j < end; j += kWarp * kGroup) {
      const auto words =
          draw(mask.first_row + row, static_cast<std::uint32_t>(j / kGroup), mask.layer, key);
#pragma unroll
      for (std::size_t k = 0; k < kGroup; ++k) {
        if (j + k >= end) break;
        const T kept = words.at[k] <= drawn.last_dropped ? T(0) : factor;
        y[j + k] = static_cast<X>(number(x[j + k]) * kept);
      }
    }
  });
}

}  // namespace

void CudaBackend::dropout(Stream& stream, const Dropout& call) {
  const std::optional<DropoutDraw> drawn = dropout_draw(call.mask);
  if (!drawn) {
    if (call.x.data != call.y.data) copy_matrix(stream, {call.x, call.y});
    return;
  }
  if (call.x.rows == 0 || call.x.cols == 0) return;
  for_activations(call.x.dtype, "dropout", [&]<typename X>() {
    launch(stream, "dropout", row_tiles(call.x.rows, call.x.cols), dropout_kernel<X>, call.x.rows,
           call.x.cols, rows_of<X>(call.x), rows_of<X>(call.y), *drawn, call.mask,
           data_of<std::int64_t>(call.mask.step_on_device));
  });
}

}  // namespace lockstep::kernels::cuda
