#include "engine/core/text.h"

#include <gtest/gtest.h>

#include <array>
#include <string>

namespace lockstep {
namespace {

const std::array<std::string, 5> kPlans = {"auto", "ring", "tree", "one-shot", "two-shot"};

TEST(DidYouMean, NamesTheNearestWord) {
  EXPECT_EQ(did_you_mean("rign", kPlans), "; did you mean 'ring'?");
  EXPECT_EQ(did_you_mean("two-sht", kPlans), "; did you mean 'two-shot'?");
}

TEST(DidYouMean, SaysNothingWhereNoWordIsNear) {
  EXPECT_EQ(did_you_mean("butterfly", kPlans), "");
  EXPECT_EQ(did_you_mean("", kPlans), "");
  EXPECT_EQ(did_you_mean("x", kPlans), "");
}

}  // namespace
}  // namespace lockstep
