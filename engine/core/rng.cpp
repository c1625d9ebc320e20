#include "engine/core/rng.h"

#include <cmath>
#include <numbers>
#include <numeric>
#include <utility>

#include "engine/core/error.h"
#include "engine/core/shape.h"

namespace lockstep {
namespace {

constexpr std::uint32_t kMultiplier0 = 0xD2511F53u;
constexpr std::uint32_t kMultiplier1 = 0xCD9E8D57u;
constexpr std::uint32_t kWeyl0 = 0x9E3779B9u;
constexpr std::uint32_t kWeyl1 = 0xBB67AE85u;
constexpr int kRounds = 10;

}  // namespace

PhiloxBlock philox(const PhiloxBlock& counter, std::uint64_t key) {
  PhiloxBlock c = counter;
  std::uint32_t key0 = static_cast<std::uint32_t>(key);
  std::uint32_t key1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < kRounds; ++round) {
    const std::uint64_t product0 = static_cast<std::uint64_t>(kMultiplier0) * c[0];
    const std::uint64_t product1 = static_cast<std::uint64_t>(kMultiplier1) * c[2];
    c = {static_cast<std::uint32_t>(product1 >> 32) ^ c[1] ^ key0,
         static_cast<std::uint32_t>(product1),
         static_cast<std::uint32_t>(product0 >> 32) ^ c[3] ^ key1,
         static_cast<std::uint32_t>(product0)};
    key0 += kWeyl0;
    key1 += kWeyl1;
  }
  return c;
}

std::uint32_t Rng::next_word() {
  if (used_ == 4) {
    block_ = philox(
        {static_cast<std::uint32_t>(block_index_), static_cast<std::uint32_t>(block_index_ >> 32),
         static_cast<std::uint32_t>(stream_), static_cast<std::uint32_t>(stream_ >> 32)},
        seed_);
    ++block_index_;
    used_ = 0;
  }
  return block_[used_++];
}

double Rng::uniform() {
  const std::uint32_t high = next_word();
  return uniform_double(high, next_word());
}

double Rng::normal() {
  const double radius = std::sqrt(-2.0 * std::log1p(-uniform()));
  return radius * std::cos(2.0 * std::numbers::pi * uniform());
}

std::uint64_t Rng::below(std::uint64_t bound) {
  require(bound > 0, ErrorCode::Usage, "rng", "there is no number below 0");
  // Values at or above the largest multiple of bound would favour small results; draw again.
  const std::uint64_t excess = (0 - bound) % bound;  // 2^64 mod bound
  while (true) {
    const std::uint64_t high = next_word();
    const std::uint64_t value = high << 32 | next_word();
    if (value >= excess) return value % bound;
  }
}

Rng& default_rng() {
  thread_local Rng rng(0);
  return rng;
}

void manual_seed(std::uint64_t seed) {
  default_rng() = Rng(seed);
}

std::vector<std::size_t> random_permutation(std::size_t num_elements, std::uint64_t seed) {
  checked_product("permutation", num_elements, sizeof(std::size_t));
  std::vector<std::size_t> order(num_elements);
  std::iota(order.begin(), order.end(), std::size_t{0});
  Rng rng(seed);
  for (std::size_t remaining = num_elements; remaining > 1; --remaining) {
    std::swap(order[remaining - 1], order[rng.below(remaining)]);
  }
  return order;
}

}  // namespace lockstep
