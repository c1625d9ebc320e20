#include "engine/core/shape.h"

#include <gtest/gtest.h>

#include "tests/support/expect_error.h"

namespace lockstep {
namespace {

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
