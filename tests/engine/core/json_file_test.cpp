#include "engine/core/json_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "engine/core/error.h"

namespace lockstep {
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

std::string message_of(const std::string& text) {
  return message_of([&] { JsonFile("f.json", text, "test").fields(); });
}

TEST(JsonFile, NamesTheFieldOfAMistake) {
  const JsonFile file("f.json", "{\n\"a\": 0,\n\"b\": {\n\"c\": \"x\"}}", "test");
  const JsonFields fields = file.fields();
  EXPECT_EQ(fields.number("a"), 0);
  EXPECT_THAT(message_of([&] { fields.positive("a"); }),
              HasSubstr("'f.json': expected a to be a number above 0, to 1e30, found 0"));
  const JsonFields b = fields.object("b");
  EXPECT_THAT(message_of([&] { b.number("c"); }), HasSubstr("'f.json': expected b.c to be"));
  EXPECT_THAT(message_of([&] { b.number("d"); }),
              HasSubstr("'f.json': expected b.d to be a number from 0 to 1e30, found nothing"));
}

TEST(JsonFile, RefusesValuesThatCannotBe) {
  const JsonFile file("f.json", R"({"half": 0.5, "minus": -1, "list": [1, "x"], "flag": 1,
    "huge": 1e300})",
                      "test");
  const JsonFields fields = file.fields();
  EXPECT_THAT(message_of([&] { fields.count("half"); }), HasSubstr("a count, 1 or more"));
  EXPECT_THAT(message_of([&] { fields.count("huge"); }), HasSubstr("a count, 1 or more"));
  EXPECT_THAT(message_of([&] { fields.number("huge"); }), HasSubstr("found 1e+300"));
  EXPECT_THAT(message_of([&] { fields.count_or("minus", 3); }), HasSubstr("found -1"));
  EXPECT_EQ(fields.count_or("none", 3), 3U);
  EXPECT_THAT(message_of([&] { fields.numbers("list"); }), HasSubstr("found a list"));
  EXPECT_THAT(message_of([&] { fields.texts("list"); }), HasSubstr("a list of texts"));
  EXPECT_THAT(message_of([&] { fields.objects("list"); }),
              HasSubstr("expected list[0] to be an object, found 1"));
  EXPECT_THAT(message_of([&] { fields.optional_flag("flag"); }), HasSubstr("true or false"));
}

TEST(JsonFile, SaysWhyATextIsNone) {
  EXPECT_THAT(message_of("{\n\"a\": [1,\n"), HasSubstr("'f.json', line 3: the file is truncated"));
  EXPECT_THAT(message_of("{\n\"a\": nul,\n\"b\": 1}"),
              HasSubstr("'f.json', line 2: this is not JSON"));
  EXPECT_THAT(message_of("{\n\"a\": 1e999}"), HasSubstr("line 2: the number 1e999 is too large"));
  EXPECT_THAT(message_of(""), HasSubstr("'f.json' is empty"));
  EXPECT_THAT(message_of("[1]"), HasSubstr("expected the file to be an object, found a list"));
}

TEST(JsonFile, IsNotConfusedByDepth) {
  const std::string deep = std::string(1'000'000, '[') + std::string(1'000'000, ']');
  const JsonFile file("f.json", "{\"a\": " + deep + ",\n\"b\": 1}", "test");
  EXPECT_THAT(message_of([&] { file.fields().number("a"); }), HasSubstr("found a list"));
  EXPECT_THAT(message_of([&] { file.fields().text("b"); }), HasSubstr("expected b to be a text"));
}

}  // namespace
}  // namespace lockstep
