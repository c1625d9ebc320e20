#include "tools/cli/numbers.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/support/expect_error.h"

namespace lockstep::tools {
namespace {

using lockstep::testing::expect_error;

TEST(ParseBytes, CountsInPowersOf1024) {
  EXPECT_EQ(parse_bytes("-b", "5"), 5u);
  EXPECT_EQ(parse_bytes("-b", "5B"), 5u);
  EXPECT_EQ(parse_bytes("-b", "16K"), 16u << 10);
  EXPECT_EQ(parse_bytes("-b", "16KB"), 16u << 10);
  EXPECT_EQ(parse_bytes("-b", "64MiB"), 64u << 20);
  EXPECT_EQ(parse_bytes("-b", "1G"), std::size_t{1} << 30);
  EXPECT_EQ(parse_bytes("-b", "3T"), std::size_t{3} << 40);
}

TEST(ParseBytes, RefusesWhatIsNoSizeOrTooLarge) {
  for (const char* text :
       {"", "K", "-1", "1.5K", "1k", "1X", "1 K", "1Ki B", "16777216T", "18446744073709551616"}) {
    expect_error(ErrorCode::Usage, std::string("found '") + text + "'",
                 [text] { parse_bytes("-b", text); });
  }
  EXPECT_EQ(parse_bytes("-b", "18446744073709551615"), std::numeric_limits<std::size_t>::max());
}

}  // namespace
}  // namespace lockstep::tools
