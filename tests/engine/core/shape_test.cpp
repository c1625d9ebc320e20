#include "engine/core/shape.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/support/expect_error.h"

namespace lockstep {
namespace {

TEST(Shape, AScalarHasNoDimensionsAndOneElement) {
  const Shape scalar;
  EXPECT_EQ(scalar.num_dims(), 0u);
  EXPECT_EQ(scalar.num_elements(), 1u);
  EXPECT_EQ(scalar.row_elements(), 1u);
  EXPECT_EQ(to_string(scalar), "[]");
}

TEST(Shape, CountsElementsAndThoseOfOneRow) {
  const Shape shape{5, 3, 4};
  EXPECT_EQ(shape.num_dims(), 3u);
  EXPECT_EQ(shape.num_elements(), 60u);
  EXPECT_EQ(shape.row_elements(), 12u);
  EXPECT_EQ(Shape{7}.row_elements(), 1u);
  EXPECT_EQ(to_string(shape), "[5, 3, 4]");
}

TEST(Shape, ASizeOfZeroMeansNoElements) {
  const Shape empty{0, 5};
  EXPECT_EQ(empty.num_elements(), 0u);
  EXPECT_EQ(empty.row_elements(), 5u);
  EXPECT_EQ(to_string(empty), "[0, 5]");
}

TEST(Shape, ShapesAreEqualWhenTheirSizesAre) {
  EXPECT_EQ((Shape{2, 3}), (Shape{2, 3}));
  EXPECT_NE((Shape{2, 3}), (Shape{3, 2}));
  EXPECT_NE((Shape{2, 3}), (Shape{2, 3, 1}));
  EXPECT_NE(Shape{}, Shape{0});  // one element against none
}

TEST(Shape, WithReplacesOneSizeAndLeavesTheOriginal) {
  const Shape shape{30, 5};
  EXPECT_EQ(shape.with(0, 10), (Shape{10, 5}));
  EXPECT_EQ(shape, (Shape{30, 5}));
}

TEST(Shape, ASpanOfSizesMakesTheSameShapeAsAList) {
  const std::vector<std::size_t> sizes{1, 2, 3, 4, 5, 6};
  EXPECT_EQ(Shape(std::span<const std::size_t>(sizes)), (Shape{1, 2, 3, 4, 5, 6}));
}

TEST(Shape, MoreThanSixDimensionsAreAnErrorThatShowsBothNumbers) {
  testing::expect_error(ErrorCode::Shape, "at most 6 dimensions are supported, found 7", [] {
    Shape({1, 1, 1, 1, 1, 1, 1});
  });
}

}  // namespace
}  // namespace lockstep
