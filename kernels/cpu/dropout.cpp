// Dropout whose mask depends only on seed, step, layer and the element's place in the global batch.
//
// The mask, which every backend draws alike:
//   key     = words 0 and 1 (low, high) of philox({step low, step high, kDropout, 0}, seed)
//   words   = philox({row low, row high, column / 4, layer}, key), row = first_row + r
//   dropped = words[column % 4] < floor(probability * 2^32)
#include "engine/core/rng.h"
#include "kernels/cpu/checks.h"
#include "kernels/cpu/eigen_backend.h"
#include "kernels/cpu/parallel.h"

namespace lockstep::kernels {
namespace {

constexpr std::uint32_t kDropout = 0x64726f70u;  // "drop": sets these keys apart from other uses

std::uint32_t low(std::uint64_t value) {
  return static_cast<std::uint32_t>(value);
}
std::uint32_t high(std::uint64_t value) {
  return static_cast<std::uint32_t>(value >> 32);
}

std::uint64_t mask_key(const DropoutMask& mask) {
  const PhiloxBlock block = philox({low(mask.step), high(mask.step), kDropout, 0}, mask.seed);
  return static_cast<std::uint64_t>(block[1]) << 32 | block[0];
}

// Philox blocks that are drawn side by side, so that the compiler vectorises them.
constexpr std::size_t kBlocks = 16;
constexpr std::size_t kWords = 4 * kBlocks;

// The words of columns first_block * 4 ... + kWords - 1 of one row: core's philox() for kBlocks
// counters.
void draw_words(std::uint64_t row, std::uint32_t first_block, std::uint32_t layer,
                std::uint64_t key, std::uint32_t* words) {
  std::uint32_t c0[kBlocks], c1[kBlocks], c2[kBlocks], c3[kBlocks];
  for (std::uint32_t i = 0; i < kBlocks; ++i) {
    c0[i] = low(row);
    c1[i] = high(row);
    c2[i] = first_block + i;
    c3[i] = layer;
  }
  std::uint32_t key0 = low(key);
  std::uint32_t key1 = high(key);
  for (int round = 0; round < 10; ++round) {
    for (std::size_t i = 0; i < kBlocks; ++i) {
      const std::uint64_t product0 = std::uint64_t{0xD2511F53u} * c0[i];
      const std::uint64_t product1 = std::uint64_t{0xCD9E8D57u} * c2[i];
      c0[i] = high(product1) ^ c1[i] ^ key0;
      c1[i] = low(product1);
      c2[i] = high(product0) ^ c3[i] ^ key1;
      c3[i] = low(product0);
    }
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  for (std::size_t i = 0; i < kBlocks; ++i) {
    words[4 * i] = c0[i];
    words[4 * i + 1] = c1[i];
    words[4 * i + 2] = c2[i];
    words[4 * i + 3] = c3[i];
  }
}

// last_dropped: the largest word that drops its element.
template <typename T>
void drop_row(const DropoutMask& mask, std::uint64_t key, std::uint32_t last_dropped, T factor,
              std::uint64_t row, const T* x, T* y, std::size_t cols) {
  std::uint32_t words[kWords];
  for (std::size_t j = 0; j < cols; j += kWords) {
    draw_words(row, static_cast<std::uint32_t>(j / 4), mask.layer, key, words);
    const std::size_t count = std::min(kWords, cols - j);
#pragma GCC ivdep
    for (std::size_t k = 0; k < count; ++k) {
      y[j + k] = x[j + k] * (words[k] <= last_dropped ? T(0) : factor);
    }
  }
}

}  // namespace

void EigenBackend::dropout(Stream& stream, const DropoutMask& mask, ConstMatrixView x,
                           MatrixView y) {
  require_matrix("dropout", "y", y, x.dtype, x.rows, x.cols);
  require(mask.probability >= 0 && mask.probability <= 1, ErrorCode::Usage, "dropout",
          "the probability must be in [0, 1], found {}", mask.probability);
  const std::uint64_t key = mask_key(mask);
  const auto threshold = static_cast<std::uint64_t>(mask.probability * 0x1p32);
  if (threshold == 0) {
    if (x.data != y.data) copy_matrix(stream, x, y);
    return;
  }
  const auto last_dropped = static_cast<std::uint32_t>(threshold - 1);
  const double factor = mask.probability < 1 ? 1 / (1 - mask.probability) : 0;
  for_floating(x.dtype, "dropout", [&]<typename T>() {
    parallel_rows(stream, x.rows, 4 * x.cols, [&](std::size_t begin, std::size_t end) {
      for (std::size_t i = begin; i < end; ++i) {
        drop_row<T>(mask, key, last_dropped, static_cast<T>(factor), mask.first_row + i,
                    row_of<T>(x, i), row_of<T>(y, i), x.cols);
      }
    });
  });
}

}  // namespace lockstep::kernels
