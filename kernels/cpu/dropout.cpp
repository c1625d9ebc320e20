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

template <typename T>
void drop_row(const DropoutMask& mask, std::uint64_t key, std::uint64_t threshold, T factor,
              std::uint64_t row, const T* x, T* y, std::size_t cols) {
  for (std::size_t j = 0; j < cols; j += 4) {
    const PhiloxBlock words =
        philox({low(row), high(row), static_cast<std::uint32_t>(j / 4), mask.layer}, key);
    for (std::size_t k = 0; k < 4 && j + k < cols; ++k) {
      y[j + k] = x[j + k] * (words[k] < threshold ? T(0) : factor);
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
  const double factor = mask.probability < 1 ? 1 / (1 - mask.probability) : 0;
  for_floating(x.dtype, "dropout", [&]<typename T>() {
    parallel_rows(stream, x.rows, 4 * x.cols, [&](std::size_t begin, std::size_t end) {
      for (std::size_t i = begin; i < end; ++i) {
        drop_row<T>(mask, key, threshold, static_cast<T>(factor), mask.first_row + i,
                    row_of<T>(x, i), row_of<T>(y, i), x.cols);
      }
    });
  });
}

}  // namespace lockstep::kernels
