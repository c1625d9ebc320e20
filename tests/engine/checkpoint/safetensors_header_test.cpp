#include "engine/checkpoint/safetensors_header.h"

#include <gtest/gtest.h>

#include "tests/support/expect_error.h"

namespace lockstep::checkpoint {
namespace {

using lockstep::testing::expect_error;

struct BadHeader {
  const char* name;
  const char* json;
  std::uint64_t num_data_bytes;
  const char* words;  // in the message
};

class SafetensorsBadHeader : public ::testing::TestWithParam<BadHeader> {};

TEST_P(SafetensorsBadHeader, IsRefusedWithItsReason) {
  const BadHeader& bad = GetParam();
  expect_error(ErrorCode::Io, bad.words,
               [&] { parse_header(bad.json, bad.num_data_bytes, "model.safetensors"); });
  expect_error(ErrorCode::Io, "'model.safetensors'",
               [&] { parse_header(bad.json, bad.num_data_bytes, "model.safetensors"); });
}

INSTANTIATE_TEST_SUITE_P(
    All, SafetensorsBadHeader,
    ::testing::Values(
        BadHeader{"Empty", "", 0, "not a JSON object"},
        BadHeader{"Array", "[]", 0, "not a JSON object"},
        BadHeader{"CutJson", R"({"a":)", 0, "not valid JSON"},
        BadHeader{"NotUtf8", "{\"\xff\":1}", 0, "not valid JSON"},
        BadHeader{"TextAfterTheObject", "{} {}", 0, "not valid JSON"},
        BadHeader{"DeepNesting", R"({"a":[[[[[[[[1]]]]]]]]})", 0, "the entry of 'a' must hold"},
        BadHeader{"DeepNestingInAShape",
                  R"({"a":{"dtype":"U8","shape":[[[[1]]]],"data_offsets":[0,1]}})", 1,
                  "shape of 'a' must hold whole numbers"},
        BadHeader{"DeepNestingInMetadata", R"({"__metadata__":{"a":{"b":{}}}})", 0,
                  "may hold texts only, but 'a' is none"},
        BadHeader{"MetadataTwice", R"({"__metadata__":{},"__metadata__":{}})", 0,
                  "'__metadata__' stands twice"},
        BadHeader{"MetadataKeyTwice", R"({"__metadata__":{"k":"v","k":"w"}})", 0,
                  "'k' stands twice"},
        BadHeader{"DuplicateName",
                  R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},
                      "a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
                  2, "'a' stands twice"},
        BadHeader{"DuplicateField",
                  R"({"a":{"dtype":"U8","dtype":"I64","shape":[1],"data_offsets":[0,1]}})", 1,
                  "'dtype' stands twice"},
        BadHeader{"EntryIsNoObject", R"({"a":1})", 0, "must hold dtype, shape and data_offsets"},
        BadHeader{"FieldMissing", R"({"a":{"dtype":"U8","shape":[1]}})", 1,
                  "must hold dtype, shape and data_offsets"},
        BadHeader{"UnknownField",
                  R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"strides":[1]}})", 1,
                  "must hold dtype, shape and data_offsets"},
        BadHeader{"UnknownType", R"({"a":{"dtype":"F8_E4M3","shape":[1],"data_offsets":[0,1]}})", 1,
                  "elements of type 'F8_E4M3'; F64, F32"},
        BadHeader{"TypeIsNoText", R"({"a":{"dtype":8,"shape":[1],"data_offsets":[0,1]}})", 1,
                  "dtype of 'a' is not a string"},
        BadHeader{"NegativeSize", R"({"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}})", 1,
                  "shape of 'a' must hold whole numbers"},
        BadHeader{"FractionalSize", R"({"a":{"dtype":"U8","shape":[1.5],"data_offsets":[0,1]}})", 1,
                  "shape of 'a' must hold whole numbers"},
        BadHeader{"ShapeIsNoList", R"({"a":{"dtype":"U8","shape":1,"data_offsets":[0,1]}})", 1,
                  "shape of 'a' is not a list"},
        BadHeader{"TooManyDimensions",
                  R"({"a":{"dtype":"U8","shape":[1,1,1,1,1,1,1],"data_offsets":[0,1]}})", 1,
                  "'a' has 7 dimensions"},
        BadHeader{"ShapeDoesNotFitTheBytes",
                  R"({"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,20]}})", 20,
                  "shape [2, 3] of 'a' does not fit its 20 bytes of float32"},
        BadHeader{"ShapeOverflows",
                  R"({"a":{"dtype":"F64","shape":[4294967296,4294967296],"data_offsets":[0,0]}})",
                  0, "does not fit its 0 bytes"},
        BadHeader{"SizeBeyond64Bits",
                  R"({"a":{"dtype":"U8","shape":[18446744073709551617],"data_offsets":[0,1]}})", 1,
                  "shape of 'a' must hold whole numbers"},
        BadHeader{"EndBeforeBegin", R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[1,0]}})", 1,
                  "must be a begin and an end"},
        BadHeader{"ThreeOffsets", R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1,2]}})", 2,
                  "must be a begin and an end"},
        BadHeader{"Gap",
                  R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},
                      "b":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}})",
                  3, "the bytes of 'b' begin at 2, but those before it end at 1"},
        BadHeader{"Overlap",
                  R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},
                      "b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
                  3, "the bytes of 'b' begin at 1"},
        BadHeader{"DataMissing", R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})", 3,
                  "describes 4 bytes of data, the file has 3"},
        BadHeader{"DataLeftOver", R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})", 5,
                  "describes 4 bytes of data, the file has 5"},
        BadHeader{"MetadataIsNoObject", R"({"__metadata__":[]})", 0, "is not an object"},
        BadHeader{"MetadataIsNoText", R"({"__metadata__":{"step":1}})", 0, "may hold texts only"}),
    [](const auto& test) { return std::string(test.param.name); });

TEST(SafetensorsHeader, AcceptsPaddingAndAnyOrderOfEntries) {
  const Header header = parse_header(R"({"b":{"shape":[2],"dtype":"U8","data_offsets":[4,6]},
      "a":{"dtype":"I32","shape":[],"data_offsets":[0,4]}}    )",
                                     6, "file");
  ASSERT_EQ(header.entries.size(), 2u);
  EXPECT_EQ(header.entries[0].name, "a");
  EXPECT_EQ(header.entries[0].shape, Shape{});
  EXPECT_EQ(header.entries[1].name, "b");
}

TEST(SafetensorsHeader, RefusesWhatFollowsANul) {
  for (const std::string_view text : {std::string_view("{}\0", 3), std::string_view("{}\0{}", 5)}) {
    expect_error(ErrorCode::Io, "a NUL at byte 2", [&] { parse_header(text, 0, "file"); });
  }
}

TEST(SafetensorsHeader, CutsLongNamesInMessages) {
  const std::string name(1'000'000, 'n');
  const auto cut = std::string(80, 'n') + "...'";
  for (const std::string& value : {std::string("1"), R"({"dtype":")" + name + R"("})"}) {
    expect_error(ErrorCode::Io, cut,
                 [&] { parse_header(R"({")" + name + R"(":)" + value + "}", 0, "file"); });
  }
}

// A parser that took quadratic time would take an hour.
TEST(SafetensorsHeader, IsReadAndWrittenInLinearTime) {
  constexpr std::uint64_t kNumArrays = 300'000;
  Header header;
  for (std::uint64_t i = 0; i < kNumArrays; ++i) {
    header.entries.push_back(
        {fmt::format("layer.{}.weight", i), DType::float32, {1}, 4 * i, 4 * i + 4});
  }
  const Header read = parse_header(header_to_json(header), 4 * kNumArrays, "file");
  ASSERT_EQ(read.entries.size(), kNumArrays);
  EXPECT_EQ(read.entries[70'000].name, "layer.70000.weight");
}

TEST(SafetensorsHeader, SurvivesEveryChangedByte) {
  const std::string valid =
      R"({"__metadata__":{"k":"v"},"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}})";
  for (std::size_t i = 0; i < valid.size(); ++i) {
    for (const char changed : {'\0', '"', '{', '}', '9', '-', '\xff'}) {
      std::string text = valid;
      text[i] = changed;
      try {
        const Header header = parse_header(text, 24, "file");
        for (const HeaderEntry& entry : header.entries) EXPECT_LE(entry.end, 24u);
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::Io);
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::checkpoint
