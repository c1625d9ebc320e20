#include "engine/core/shape.h"

#include <gtest/gtest.h>

#include "tests/support/expect_error.h"

namespace lockstep {
namespace {

TEST(Shape, CountsElementsAndThoseOfOneRow) {
  const Shape shape{5, 3, 4};
  EXPECT_EQ(shape.num_dims(), 3u);
  EXPECT_EQ(shape.num_elements(), 60u);
  EXPECT_EQ(shape.row_elements(), 12u);
  EXPECT_EQ(Shape{7}.row_elements(), 1u);
  EXPECT_EQ(to_string(shape), "[5, 3, 4]");
  EXPECT_EQ(Shape{}.num_elements(), 1u);
  EXPECT_EQ(to_string(Shape{}), "[]");
  EXPECT_EQ((Shape{0, 5}).num_elements(), 0u);
  EXPECT_EQ((Shape{0, 5}).row_elements(), 5u);
  EXPECT_NE(Shape{}, Shape{0}) << "one element against none";
}

TEST(Shape, MoreThanSixDimensionsAreRefused) {
  testing::expect_error(ErrorCode::Shape, "at most 6 dimensions are supported, found 7", [] {
    Shape({1, 1, 1, 1, 1, 1, 1});
  });
}

TEST(Shape, ADimensionThatIsNotThereIsRefused) {
  const Shape shape{3, 4};
  testing::expect_error(ErrorCode::Shape, "[shape] [3, 4] has 2 dimensions, and there is no",
                        [&] { shape[2]; });
  testing::expect_error(ErrorCode::Shape, "there is no dimension 6", [&] { shape.with(6, 1); });
}

TEST(Shape, MoreElementsThanCanBeCountedAreRefused) {
  constexpr std::size_t kHalf = std::size_t{1} << 32;
  EXPECT_EQ((Shape{kHalf, kHalf / 4}).num_elements(), std::size_t{1} << 62);
  EXPECT_EQ((Shape{kMaxSize}).num_elements(), kMaxSize);
  const std::string words = "[shape] [4294967296, 4294967296] has more than 9223372036854775807";
  testing::expect_error(ErrorCode::Shape, words, [] { Shape({kHalf, kHalf}); });
  testing::expect_error(ErrorCode::Shape, "has more than", [] { Shape({kHalf, kHalf / 2}); });
  testing::expect_error(ErrorCode::Shape, "has more than", [] { Shape({kHalf + 1, kHalf}); });
  testing::expect_error(ErrorCode::Shape, "has more than", [] { Shape({0, kHalf, kHalf}); });
  testing::expect_error(ErrorCode::Shape, "has more than", [] { Shape{1, kHalf}.with(0, kHalf); });
}

TEST(Shape, BytesAreCountedOrRefused) {
  constexpr std::size_t kEighth = std::size_t{1} << 60;
  EXPECT_EQ(num_bytes_of({5, 3}, DType::float64), 120u);
  EXPECT_EQ(num_bytes_of({0, 3}, DType::float64), 0u);
  EXPECT_EQ(num_bytes_of({kEighth}, DType::float32), std::size_t{1} << 62);
  const std::string words = "[shape] [1152921504606846976] float64 has more than 92233720368547758";
  testing::expect_error(ErrorCode::Shape, words, [] { num_bytes_of({kEighth}, DType::float64); });
  testing::expect_error(ErrorCode::Shape, "float64 has more than", [] {
    num_bytes_of({0, kEighth}, DType::float64);
  });
}

TEST(Shape, NarrowingKeepsTheValueOrIsAnError) {
  EXPECT_EQ((checked_narrow<std::int32_t>("op", "a rank", std::size_t{2147483647})), 2147483647);
  testing::expect_error(ErrorCode::Shape, "[op] a rank must fit into 32 bits, found 2147483648",
                        [] { checked_narrow<std::int32_t>("op", "a rank", std::size_t{1} << 31); });
  testing::expect_error(ErrorCode::Shape, "found -1",
                        [] { checked_narrow<std::size_t>("op", "a count", -1); });
}

}  // namespace
}  // namespace lockstep
