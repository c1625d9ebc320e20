#include "engine/core/views.h"

#include <gtest/gtest.h>

#include <array>

namespace lockstep {
namespace {

TEST(Views, AMatrixViewOverDataIsContiguous) {
  std::array<float, 6> data{};
  const MatrixView matrix = matrix_view(data.data(), DType::float32, 2, 3);
  EXPECT_TRUE(matrix.is_contiguous());
  EXPECT_EQ(matrix.num_elements(), 6u);
}

TEST(Views, AWideLeadingDimensionIsNotContiguous) {
  MatrixView matrix = matrix_view(static_cast<void*>(nullptr), DType::float32, 2, 3);
  matrix.leading_dimension = 4;
  EXPECT_FALSE(matrix.is_contiguous());
  EXPECT_EQ(matrix.num_elements(), 6u);  // what it shows, not what it spans
  matrix.rows = 1;                       // with one row there is nothing between rows
  EXPECT_TRUE(matrix.is_contiguous());
}

TEST(Views, AGapInABatchIsNotContiguous) {
  MatrixView matrix = matrix_view(static_cast<void*>(nullptr), DType::float32, 2, 3);
  matrix.batch = 4;
  EXPECT_TRUE(matrix.is_contiguous());
  EXPECT_EQ(matrix.num_elements(), 24u);
  matrix.batch_stride = 8;
  EXPECT_FALSE(matrix.is_contiguous());
}

}  // namespace
}  // namespace lockstep
