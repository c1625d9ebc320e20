#include "tools/cli/numbers.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/support/expect_error.h"

namespace lockstep::tools {
namespace {

using lockstep::testing::expect_error;

TEST(ParseList, ReadsWholeNumbersBetweenCommas) {
  EXPECT_EQ(parse_list("--devices", "1"), (std::vector<std::size_t>{1}));
  EXPECT_EQ(parse_list("--devices", "8,0,3"), (std::vector<std::size_t>{8, 0, 3}));
}

TEST(ParseList, QuotesTheItemThatIsNoNumber) {
  for (const auto& [text, item] : {std::pair{"", "''"},
                                   {"1,,2", "''"},
                                   {"1,", "''"},
                                   {"1,-2", "'-2'"},
                                   {"1, 2", "' 2'"},
                                   {"1.5", "'1.5'"},
                                   {"99999999999999999999", "'99999999999999999999'"}}) {
    expect_error(ErrorCode::Usage,
                 std::string("[--devices] expected numbers such as 1,2,4, found ") + item,
                 [text = text] { parse_list("--devices", text); });
  }
}

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

TEST(RequirePositive, RefusesZeroNegativeAndNotFiniteNumbers) {
  EXPECT_EQ(require_positive("--batch", 3), 3u);
  EXPECT_EQ(require_positive("--seconds", 0.5), 0.5);
  EXPECT_EQ(require_not_negative("--lr", 0.0), 0.0);
  expect_error(ErrorCode::Usage, "[--batch] must be at least 1, found 0",
               [] { require_positive("--batch", 0); });
  for (const double value :
       {-1.0, std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    expect_error(ErrorCode::Usage, "[--lr]", [value] { require_not_negative("--lr", value); });
    expect_error(ErrorCode::Usage, "[--lr]", [value] { require_positive("--lr", value); });
  }
  expect_error(ErrorCode::Usage, "[--lr]", [] { require_positive("--lr", 0.0); });
}

}  // namespace
}  // namespace lockstep::tools
