#include "tests/hostile/damage.h"

#include <gtest/gtest.h>

#include <set>

namespace lockstep::testing {
namespace {

TEST(Damage, DependsOnTheSeedAlone) {
  const std::string valid(200, 'x');
  std::set<std::string> all;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const std::string bytes = damaged(valid, seed);
    EXPECT_EQ(bytes, damaged(valid, seed));
    all.insert(bytes);
  }
  EXPECT_GT(all.size(), 150u);
}

TEST(Damage, IsDoneToEmptyFilesToo) {
  std::set<std::string> all;
  for (std::uint64_t seed = 0; seed < 200; ++seed) all.insert(damaged("", seed));
  EXPECT_GT(all.size(), 10u);
}

}  // namespace
}  // namespace lockstep::testing
