#include "engine/core/shape.h"

#include <gtest/gtest.h>

#include "tests/support/expect_error.h"

namespace lockstep {
namespace {

TEST(Checked, AreExactUpToTheLargestSize) {
  EXPECT_EQ(checked_product("op", 3, 5), 15u);
  EXPECT_EQ(checked_product("op", 0, static_cast<std::size_t>(-1)), 0u);
  EXPECT_EQ(checked_product("op", 7, kMaxSize / 7), kMaxSize);
  EXPECT_EQ(checked_sum("op", kMaxSize - 1, 1), kMaxSize);
}

TEST(Checked, AboveItAreAnError) {
  testing::expect_error(
      ErrorCode::Shape, "[op] 4294967297 times 4294967296 is above 9223372036854775807",
      [] { checked_product("op", (std::size_t{1} << 32) + 1, std::size_t{1} << 32); });
  testing::expect_error(ErrorCode::Shape, "times 2 is above",
                        [] { checked_product("op", kMaxSize / 2 + 1, 2); });
  testing::expect_error(ErrorCode::Shape, "plus 1 is above",
                        [] { checked_sum("op", kMaxSize, 1); });
  testing::expect_error(ErrorCode::Shape, "[op] 2 plus 18446744073709551615 is above",
                        [] { checked_sum("op", 2, static_cast<std::size_t>(-1)); });
}

TEST(Checked, NarrowingKeepsTheValueOrIsAnError) {
  EXPECT_EQ((checked_narrow<std::int32_t>("op", "a rank", std::size_t{2147483647})), 2147483647);
  EXPECT_EQ((checked_narrow<std::uint32_t>("op", "a rank", 5)), 5u);
  testing::expect_error(ErrorCode::Shape, "[op] a rank must fit into 32 bits, found 2147483648",
                        [] { checked_narrow<std::int32_t>("op", "a rank", std::size_t{1} << 31); });
  testing::expect_error(ErrorCode::Shape, "found -1",
                        [] { checked_narrow<std::size_t>("op", "a count", -1); });
}

}  // namespace
}  // namespace lockstep
