#include "reference.h"

namespace lockstep::kernels {
namespace {

template <typename T>
class Move : public ::testing::Test {};
TYPED_TEST_SUITE(Move, Floating);

TYPED_TEST(Move, CopyGivesTheSameBits) {
  for (const std::size_t size : kSizes) {
    auto from = random_array<TypeParam>(size, 1);
    for_thread_counts([&](Stream& stream) {
      Array<TypeParam> to(size);
      cpu().copy(stream, from.view(), to.view());
      EXPECT_EQ(to.values, from.values);
    });
  }
}

TEST(MoveAny, CopyAndFillTakeEveryWidthOfElement) {
  Array<std::uint8_t> bytes(std::vector<std::uint8_t>{1, 2, 3}), byte_copy(3);
  cpu().copy(stream_with(1), bytes.view(), byte_copy.view());
  EXPECT_EQ(byte_copy.values, bytes.values);
  std::uint16_t halves[3] = {7, 8, 9}, half_copy[3] = {};
  cpu().copy(stream_with(1), TensorView{halves, DType::float16, 3},
             TensorView{half_copy, DType::float16, 3});
  EXPECT_EQ(half_copy[2], 9);
  Array<std::int64_t> longs(5);
  cpu().fill(stream_with(1), longs.view(), -3);
  EXPECT_EQ(longs.values, std::vector<std::int64_t>(5, -3));
}

TEST(MoveAny, CopyBeyondTheCacheIsCompleteAndKeepsItsBounds) {
  constexpr std::size_t kSize = (std::size_t{9} << 20) + 13;
  auto from = random_array<float>(kSize, 1);
  for_thread_counts([&](Stream& stream) {
    Array<float> to(kSize + 2, 5);
    cpu().copy(stream, from.view(), {to.values.data() + 1, DType::float32, kSize});
    EXPECT_TRUE(std::equal(from.values.begin(), from.values.end(), to.values.begin() + 1));
    EXPECT_EQ(to.values.front(), 5);
    EXPECT_EQ(to.values.back(), 5);
  });
}

TYPED_TEST(Move, CopyMatrixKeepsToItsColumns) {
  using T = TypeParam;
  for (const std::size_t rows : {0u, 1u, 33u, 500u}) {
    auto from = random_grid<T>(rows, 131, 3, 1);
    for_thread_counts([&](Stream& stream) {
      Grid<T> to(rows, 131, 5);
      cpu().copy_matrix(stream, from.view(), to.view());
      EXPECT_EQ(to.content(), from.content());
      EXPECT_TRUE(to.margin_is_untouched());
    });
  }
}

TYPED_TEST(Move, CopyMatrixFollowsTheBatchStride) {
  using T = TypeParam;
  auto from = random_array<T>(40, 1);
  Array<T> to(30);
  const MatrixView source{from.values.data(), dtype_of<T>, 2, 3, 4, 3, 12};
  const MatrixView target{to.values.data(), dtype_of<T>, 2, 3, 3, 3, 10};
  cpu().copy_matrix(stream_with(1), source, target);
  for (std::size_t b = 0; b < 3; ++b) {
    for (std::size_t i = 0; i < 2; ++i) {
      for (std::size_t j = 0; j < 3; ++j)
        EXPECT_EQ(to[b * 10 + i * 3 + j], from[b * 12 + i * 4 + j]);
    }
  }
}

template <typename From, typename To>
void expect_converts() {
  for (const std::size_t size : {0u, 1u, 33u, 100'001u}) {
    Array<From> from(size);
    for (std::size_t i = 0; i < size; ++i) from[i] = static_cast<From>(i % 251);
    Array<To> to(size);
    cpu().copy(stream_with(2), from.view(), to.view());
    for (std::size_t i = 0; i < size; ++i) ASSERT_EQ(to[i], static_cast<To>(i % 251));
  }
}

TEST(MoveAny, ConvertsBetweenTheNumberTypes) {
  expect_converts<float, double>();
  expect_converts<double, float>();
  expect_converts<std::uint8_t, float>();
  expect_converts<std::int64_t, double>();
  expect_converts<float, std::int32_t>();
  expect_converts<float, float>();
}

template <typename From, typename To>
void expect_gathers() {
  Grid<From> source(50, 70, 3);
  for (std::size_t i = 0; i < 50; ++i) {
    for (std::size_t j = 0; j < 70; ++j) source(i, j) = static_cast<From>((i * 70 + j) % 256);
  }
  for (const std::size_t rows : {0u, 1u, 7u, 2000u}) {
    Array<std::int64_t> indices(rows);
    for (std::size_t i = 0; i < rows; ++i) indices[i] = static_cast<std::int64_t>(i * 37 % 50);
    std::vector<double> expected;
    for (std::size_t i = 0; i < rows; ++i) {
      for (std::size_t j = 0; j < 70; ++j) {
        expected.push_back(double(source(std::size_t(indices[i]), j)) / 255);
      }
    }
    for_thread_counts([&](Stream& stream) {
      Grid<To> to(rows, 70, 2);
      cpu().gather_rows(stream, source.view(), indices.view(), to.view(), 1.0 / 255);
      expect_close(to.content(), expected);
      EXPECT_TRUE(to.margin_is_untouched());
    });
  }
}

TYPED_TEST(Move, GatherRowsScalesRowsOfBytesAndFloats) {
  expect_gathers<std::uint8_t, TypeParam>();
  expect_gathers<float, TypeParam>();
  expect_gathers<double, TypeParam>();
}

TYPED_TEST(Move, GatherRowsRejectsAnIndexOutsideTheSource) {
  auto source = random_grid<TypeParam>(4, 3, 0, 1);
  for (const std::int64_t wrong : {std::int64_t{4}, std::int64_t{-1}}) {
    Grid<TypeParam> to(2, 3);
    Array<std::int64_t> indices(std::vector<std::int64_t>{0, wrong});
    expect_error(ErrorCode::Shape, "[gather_rows] index", [&] {
      cpu().gather_rows(stream_with(1), source.view(), indices.view(), to.view(), 1);
    });
  }
}

}  // namespace
}  // namespace lockstep::kernels
