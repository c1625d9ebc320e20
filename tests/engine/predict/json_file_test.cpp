#include "engine/predict/json_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "engine/core/error.h"

namespace lockstep::predict {
namespace {

using ::testing::HasSubstr;

std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::Io);
    return error.what();
  }
  return "no error";
}

TEST(JsonFile, KnowsTheLineOfEachValue) {
  const auto lines =
      lines_of_values("{\n \"a\": [1,\n  {\"b\": \"x,\\\"]}\"}],\n \"c\":\n  -2.5\n}");
  EXPECT_EQ(lines.at(""), 1U);
  EXPECT_EQ(lines.at("/a"), 2U);
  EXPECT_EQ(lines.at("/a/0"), 2U);
  EXPECT_EQ(lines.at("/a/1/b"), 3U);
  EXPECT_EQ(lines.at("/c"), 5U);
}

TEST(JsonFile, NamesTheLineOfAMistake) {
  const JsonFile file("f.json", "{\n\"a\": 0,\n\"b\": {\n\"c\": \"x\"}}", "topology");
  EXPECT_THAT(message_of([&] { file.positive("/a"); }),
              HasSubstr("'f.json', line 2: '/a' must be above 0"));
  EXPECT_THAT(message_of([&] { file.number("/b/c"); }), HasSubstr("'f.json', line 4"));
  EXPECT_THAT(message_of([&] { file.number("/b/d"); }),
              HasSubstr("'f.json', line 3: '/b/d' is missing"));
}

TEST(JsonFile, SaysWhereATruncatedFileEnds) {
  EXPECT_THAT(message_of([] { JsonFile("f.json", "{\n\"a\": [1,\n", "topology"); }),
              HasSubstr("'f.json', line 3"));
}

TEST(JsonFile, IsNotConfusedByDepth) {
  const std::string deep = std::string(10'000, '[') + std::string(10'000, ']');
  const JsonFile file("f.json", "{\"a\": " + deep + "}", "topology");
  EXPECT_THAT(message_of([&] { file.number("/a"); }), HasSubstr("a list or an object"));
}

}  // namespace
}  // namespace lockstep::predict
