#include "engine/core/text.h"

#include <gtest/gtest.h>

#include <array>
#include <string>

namespace lockstep {
namespace {

const std::array<std::string, 5> kPlans = {"auto", "ring", "tree", "one-shot", "two-shot"};

TEST(EditDistance, CountsInsertedRemovedReplacedAndSwappedLetters) {
  EXPECT_EQ(edit_distance("", ""), 0u);
  EXPECT_EQ(edit_distance("ring", "ring"), 0u);
  EXPECT_EQ(edit_distance("", "tree"), 4u);
  EXPECT_EQ(edit_distance("rng", "ring"), 1u);
  EXPECT_EQ(edit_distance("riing", "ring"), 1u);
  EXPECT_EQ(edit_distance("rang", "ring"), 1u);
  EXPECT_EQ(edit_distance("irng", "ring"), 1u);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
}

TEST(DidYouMean, NamesTheNearestWord) {
  EXPECT_EQ(did_you_mean("rign", kPlans), "; did you mean 'ring'?");
  EXPECT_EQ(did_you_mean("two-sht", kPlans), "; did you mean 'two-shot'?");
}

TEST(DidYouMean, NamesAWordThatIsBegun) {
  EXPECT_EQ(did_you_mean("one", kPlans), "; did you mean 'one-shot'?");
}

TEST(DidYouMean, SaysNothingWhereNoWordIsNear) {
  EXPECT_EQ(did_you_mean("butterfly", kPlans), "");
  EXPECT_EQ(did_you_mean("", kPlans), "");
  EXPECT_EQ(did_you_mean("x", kPlans), "");
}

}  // namespace
}  // namespace lockstep
