#include "engine/core/rng.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "tests/support/expect_error.h"

namespace lockstep {
namespace {

constexpr int kDraws = 200000;

// Philox4x32-10 of Random123's kat_vectors.
TEST(Philox, GivesTheKnownAnswersOfRandom123) {
  EXPECT_EQ(philox({0, 0, 0, 0}, 0), (PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, 0xffffffffffffffff),
            (PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0x299f31d0a4093822),
            (PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Rng, ItsWordsAreThePhiloxBlocksInOrder) {
  const std::uint64_t seed = 0x0123456789abcdef;
  const std::uint64_t stream = 0xfedcba9876543210;
  Rng rng(seed, stream);
  for (std::uint32_t index = 0; index < 3; ++index) {
    for (const std::uint32_t word : philox({index, 0, 0x76543210, 0xfedcba98}, seed)) {
      EXPECT_EQ(rng.next_word(), word);
    }
  }
}

// Bounds are 5 standard errors: they hold for this seed, and would for nearly any other.
TEST(Rng, NormalValuesHaveTheirMomentsAndTails) {
  Rng rng(13);
  double sum = 0;
  double sum_of_squares = 0;
  double sum_of_fourths = 0;
  int beyond_two = 0;
  for (int i = 0; i < kDraws; ++i) {
    const double value = rng.normal();
    ASSERT_TRUE(std::isfinite(value));
    sum += value;
    sum_of_squares += value * value;
    sum_of_fourths += value * value * value * value;
    beyond_two += std::abs(value) > 2;
  }
  EXPECT_NEAR(sum / kDraws, 0, 5 * std::sqrt(1.0 / kDraws));
  EXPECT_NEAR(sum_of_squares / kDraws, 1, 5 * std::sqrt(2.0 / kDraws));
  EXPECT_NEAR(sum_of_fourths / kDraws, 3, 5 * std::sqrt(96.0 / kDraws));
  EXPECT_NEAR(beyond_two / double{kDraws}, 0.0455, 5 * std::sqrt(0.0455 / kDraws));
}

TEST(Rng, BelowIsUniformForAnyBound) {
  Rng rng(14);
  std::vector<int> counts(7);
  for (int i = 0; i < 70000; ++i) ++counts.at(rng.below(7));
  for (const int count : counts) EXPECT_NEAR(count, 10000, 5 * std::sqrt(10000.0));
}

TEST(RandomPermutation, HoldsEveryNumberOnce) {
  for (const std::size_t size : {0u, 1u, 2u, 3u, 1000u}) {
    std::vector<std::size_t> order = random_permutation(size, 21);
    std::sort(order.begin(), order.end());
    std::vector<std::size_t> expected(size);
    std::iota(expected.begin(), expected.end(), std::size_t{0});
    EXPECT_EQ(order, expected);
  }
}

TEST(RandomPermutation, EveryOrderIsEquallyLikely) {
  std::map<std::vector<std::size_t>, int> counts;
  for (std::uint64_t seed = 0; seed < 6000; ++seed) ++counts[random_permutation(3, seed)];
  EXPECT_EQ(counts.size(), 6u);
  for (const auto& [order, count] : counts) EXPECT_NEAR(count, 1000, 5 * std::sqrt(1000.0));
}

TEST(Rng, RefusesNumbersBelowZeroAndHugePermutations) {
  testing::expect_error(ErrorCode::Usage, "[rng] there is no number below 0",
                        [] { Rng(0).below(0); });
  testing::expect_error(ErrorCode::Shape, "[permutation] 2305843009213693952 times 8",
                        [] { random_permutation(std::size_t{1} << 61, 0); });
}

}  // namespace
}  // namespace lockstep
