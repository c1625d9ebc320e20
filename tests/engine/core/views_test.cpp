#include "engine/core/views.h"

#include <gtest/gtest.h>

#include <array>

namespace lockstep {
namespace {

TEST(Views, ATensorViewCountsItsBytesByItsDType) {
  std::array<double, 5> data{};
  const TensorView view{data.data(), DType::float64, data.size()};
  EXPECT_EQ(view.num_bytes(), sizeof(data));
  EXPECT_EQ((TensorView{data.data(), DType::bfloat16, 5}.num_bytes()), 10u);
  EXPECT_EQ(TensorView{}.num_bytes(), 0u);
}

TEST(Views, AReadOnlyViewSeesTheSameMemory) {
  std::array<float, 6> data{};
  const ConstTensorView tensor = TensorView{data.data(), DType::float32, data.size()};
  EXPECT_EQ(tensor.data, data.data());
  EXPECT_EQ(tensor.num_elements, 6u);
  MatrixView matrix = matrix_view(data.data(), DType::float32, 2, 3);
  matrix.batch = 2;
  matrix.batch_stride = 7;
  const ConstMatrixView same = matrix;
  EXPECT_EQ(same.data, data.data());
  EXPECT_EQ(same.rows, 2u);
  EXPECT_EQ(same.cols, 3u);
  EXPECT_EQ(same.leading_dimension, 3u);
  EXPECT_EQ(same.batch, 2u);
  EXPECT_EQ(same.batch_stride, 7u);
}

TEST(Views, AMatrixViewOverDataIsContiguous) {
  std::array<float, 6> data{};
  const MatrixView matrix = matrix_view(data.data(), DType::float32, 2, 3);
  EXPECT_TRUE(matrix.is_contiguous());
  EXPECT_EQ(matrix.num_elements(), 6u);
}

TEST(Views, ALeadingDimensionWiderThanTheRowIsNotContiguous) {
  MatrixView matrix = matrix_view(static_cast<void*>(nullptr), DType::float32, 2, 3);
  matrix.leading_dimension = 4;
  EXPECT_FALSE(matrix.is_contiguous());
  EXPECT_EQ(matrix.num_elements(), 6u);  // what it shows, not what it spans
  matrix.rows = 1;                       // with one row there is nothing between rows
  EXPECT_TRUE(matrix.is_contiguous());
}

TEST(Views, AGapBetweenMatricesOfABatchIsNotContiguous) {
  MatrixView matrix = matrix_view(static_cast<void*>(nullptr), DType::float32, 2, 3);
  matrix.batch = 4;
  EXPECT_TRUE(matrix.is_contiguous());
  EXPECT_EQ(matrix.num_elements(), 24u);
  matrix.batch_stride = 8;
  EXPECT_FALSE(matrix.is_contiguous());
}

}  // namespace
}  // namespace lockstep
