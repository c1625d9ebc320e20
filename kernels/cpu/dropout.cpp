// Dropout: the mask of kernels/dropout_draw.h, many Philox blocks at a time.
#include "kernels/cpu/eigen_backend.h"
#include "kernels/cpu/parallel.h"
#include "kernels/dropout_draw.h"

namespace lockstep::kernels {
namespace {

std::uint32_t low(std::uint64_t value) {
  return static_cast<std::uint32_t>(value);
}
std::uint32_t high(std::uint64_t value) {
  return static_cast<std::uint32_t>(value >> 32);
}

// Philox blocks drawn together, so that the compiler vectorises them.
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

template <typename T>
void drop_row(const DropoutDraw& draw, std::uint32_t layer, std::uint64_t row, const T* x, T* y,
              std::size_t cols) {
  const std::uint32_t last_dropped = draw.last_dropped;
  const T factor = static_cast<T>(draw.factor);
  std::uint32_t words[kWords];
  for (std::size_t j = 0; j < cols; j += kWords) {
    draw_words(row, static_cast<std::uint32_t>(j / 4), layer, draw.key, words);
    const std::size_t count = std::min(kWords, cols - j);
    LOCKSTEP_INDEPENDENT
    for (std::size_t k = 0; k < count; ++k) {
      y[j + k] = x[j + k] * (words[k] <= last_dropped ? T(0) : factor);
    }
  }
}

}  // namespace

void EigenBackend::dropout(Stream& stream, const Dropout& call) {
  DropoutMask known = call.mask;
  if (const auto* step = data_of<std::int64_t>(call.mask.step_on_device)) {
    known.step = static_cast<std::uint64_t>(*step);
  }
  const std::optional<DropoutDraw> draw = dropout_draw(known);
  if (!draw) {
    if (call.x.data != call.y.data) copy_matrix(stream, {call.x, call.y});
    return;
  }
  for_floating(call.x.dtype, "dropout", [&]<typename T>() {
    parallel_rows(stream, call.x.rows, 4 * call.x.cols, [&](std::size_t begin, std::size_t end) {
      for (std::size_t i = begin; i < end; ++i) {
        drop_row<T>(*draw, call.mask.layer, call.mask.first_row + i, row_of<T>(call.x, i),
                    row_of<T>(call.y, i), call.x.cols);
      }
    });
  });
}

}  // namespace lockstep::kernels
