#include "engine/core/dtype.h"

#include <gtest/gtest.h>

#include "tests/support/expect_error.h"

namespace lockstep {
namespace {

struct Expected {
  DType dtype;
  std::string_view name;
  std::size_t num_bytes;
  bool floating;
};

constexpr Expected kExpected[] = {
    {DType::float64, "float64", 8, true},   {DType::float32, "float32", 4, true},
    {DType::bfloat16, "bfloat16", 2, true}, {DType::float16, "float16", 2, true},
    {DType::int64, "int64", 8, false},      {DType::int32, "int32", 4, false},
    {DType::uint8, "uint8", 1, false}};

TEST(DType, EveryTypeHasPyTorchsName) {
  for (const Expected& expected : kExpected) {
    EXPECT_EQ(to_string(expected.dtype), expected.name);
    EXPECT_EQ(parse_dtype(expected.name), expected.dtype);
    EXPECT_EQ(size_of(expected.dtype), expected.num_bytes) << expected.name;
    EXPECT_EQ(is_floating_point(expected.dtype), expected.floating) << expected.name;
  }
}

TEST(DType, UnknownNamesAreRefused) {
  for (const char* name : {"float", "Float32", "float32 ", "", "int8"}) {
    testing::expect_error(ErrorCode::DType, "use float64, float32, bfloat16, float16, int64",
                          [&] { parse_dtype(name); });
  }
}

}  // namespace
}  // namespace lockstep
