#include "engine/core/json_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep {
namespace {

using ::testing::ElementsAre;

TEST(JsonPlaces, KnowsTheLineOfEachValue) {
  const std::string text =
      "{\n \"a\": [1,\n  {\"b\": \"x,\\\"]}\"}],\n \"c\":\n  -2.5, \"d\\\"\": {\"e\":\n[]}\n}";
  EXPECT_EQ(line_of_json(text, ""), 1U);
  EXPECT_EQ(line_of_json(text, "a"), 2U);
  EXPECT_EQ(line_of_json(text, "a[0]"), 2U);
  EXPECT_EQ(line_of_json(text, "a[1].b"), 3U);
  EXPECT_EQ(line_of_json(text, "c"), 5U);
  EXPECT_EQ(line_of_json(text, "d\".e"), 6U);
}

TEST(JsonPlaces, OfWhatIsNotThereItIsTheLineOfWhatIsAroundIt) {
  const std::string text = "\xEF\xBB\xBF\n{\"a\":\n[\n{}, 1]}";
  EXPECT_EQ(line_of_json(text, ""), 2U);
  EXPECT_EQ(line_of_json(text, "b"), 2U);
  EXPECT_EQ(line_of_json(text, "a[0].x"), 4U);
  EXPECT_EQ(line_of_json(text, "a[7].x.y"), 3U);
  EXPECT_EQ(line_of_json("12", "a.b"), 1U);
}

TEST(JsonPlaces, OfMembersWithOneNameTheLastCounts) {
  EXPECT_EQ(line_of_json("{\"a\":\n1,\n\"a\":\n2}", "a"), 4U);
}

TEST(JsonPlaces, NamesAreInTheTextsOrder) {
  EXPECT_THAT(names_in_json(R"({"o": {"z": {"x": 1}, "a\n": [2], "z": 3, "": 4}})", "o"),
              ElementsAre("z", "a\n", ""));
  EXPECT_THAT(names_in_json("{ }", ""), ElementsAre());
}

}  // namespace
}  // namespace lockstep
