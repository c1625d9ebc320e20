#include <cstring>
#include <memory>

#include "on_gpu.h"

namespace lockstep::kernels {
namespace {

template <typename T>
class GpuMove : public GpuTest {};
using Numbers = ::testing::Types<float, double, std::int64_t, std::int32_t, std::uint8_t>;
TYPED_TEST_SUITE(GpuMove, Numbers);

template <typename T>
std::vector<T> counted(std::size_t size) {
  std::vector<T> values(size);
  for (std::size_t i = 0; i < size; ++i) values[i] = static_cast<T>(i * 2654435761u % 251);
  return values;
}

TYPED_TEST(GpuMove, CopyAndFillReachEveryElementAndNoOther) {
  using T = TypeParam;
  for (const std::size_t size : kGpuSizes) {
    for (const std::size_t skew : {0u, 1u, 3u}) {
      const auto values = counted<T>(size);
      OnGpu<T> from(values, skew), to(std::vector<T>(size + 2, T(9)));
      gpu().copy(gpu_stream(), from.view(), {to.data() + 1, dtype_of<T>, size});
      auto expected = values;
      expected.insert(expected.begin(), T(9));
      expected.push_back(T(9));
      ASSERT_EQ(to.values(), expected);
      OnGpu<T> aligned(std::vector<T>(size + 1, T(9)));
      gpu().copy(gpu_stream(), from.view(), {aligned.data(), dtype_of<T>, size});
      expected.erase(expected.begin());
      ASSERT_EQ(aligned.values(), expected);
      gpu().fill(gpu_stream(), {to.data() + skew, dtype_of<T>, size + 1 - skew % 2}, 5);
      expected.assign(size + 2, T(5));
      const auto filled = to.values();
      for (std::size_t i = skew; i < skew + size + 1 - skew % 2 && i < filled.size(); ++i) {
        ASSERT_EQ(filled[i], T(5));
      }
    }
  }
}

TYPED_TEST(GpuMove, CopyMatrixKeepsToItsColumns) {
  using T = TypeParam;
  for (const std::size_t rows : {0u, 1u, 33u, 500u}) {
    for (const std::size_t cols : {1u, 3u, 32u, 131u, 2100u}) {
      for (const std::size_t margin : {0u, 3u, 16u}) {
        Grid<T> from(rows, cols, margin), to(rows, cols, 16);
        const auto values = counted<T>(rows * cols);
        for (std::size_t i = 0; i < rows * cols; ++i) from(i / cols, i % cols) = values[i];
        GridOnGpu<T> source(from), target(to);
        gpu().copy_matrix(gpu_stream(), source.view(), target.view());
        const auto result = target.grid();
        ASSERT_EQ(result.content(), from.content());
        ASSERT_TRUE(result.margin_is_untouched());
      }
    }
  }
}

class GpuMoveAny : public GpuTest {};

TEST_F(GpuMoveAny, CopyMatrixFollowsTheBatchStride) {
  OnGpu<float> from(counted<float>(40)), to(std::vector<float>(30, -1));
  const MatrixView source{from.data(), DType::float32, 2, 3, 4, 3, 12};
  const MatrixView target{to.data(), DType::float32, 2, 3, 3, 3, 10};
  gpu().copy_matrix(gpu_stream(), source, target);
  const auto in = from.values(), out = to.values();
  for (std::size_t b = 0; b < 3; ++b) {
    for (std::size_t i = 0; i < 2; ++i) {
      for (std::size_t j = 0; j < 3; ++j) {
        EXPECT_EQ(out[b * 10 + i * 3 + j], in[b * 12 + i * 4 + j]);
      }
    }
    if (b < 2) {
      EXPECT_EQ(out[b * 10 + 6], -1);
    }
  }
}

template <typename From, typename To>
void expect_converted(std::size_t size, std::size_t skew) {
  const auto values = counted<From>(size);
  OnGpu<From> from(values, skew);
  OnGpu<To> to(size);
  gpu().copy(gpu_stream(), from.view(), to.view());
  const auto result = to.values();
  for (std::size_t i = 0; i < size; ++i) ASSERT_EQ(result[i], static_cast<To>(values[i]));
}

TYPED_TEST(GpuMove, ConvertEqualsAStaticCast) {
  for (const std::size_t size : {0u, 1u, 3u, 33u, 1000u, 100'003u}) {
    for (const std::size_t skew : {0u, 1u}) {
      expect_converted<TypeParam, float>(size, skew);
      expect_converted<TypeParam, double>(size, skew);
      expect_converted<TypeParam, std::int64_t>(size, skew);
      expect_converted<TypeParam, std::int32_t>(size, skew);
      expect_converted<TypeParam, std::uint8_t>(size, skew);
    }
  }
}

// Floats as the bits of a 16-bit type, by way of the GPU.
std::vector<std::uint16_t> rounded_on_gpu(const std::vector<float>& values, DType dtype) {
  OnGpu<float> from(values);
  OnGpu<float> room(values.size());
  const TensorView halves{room.data(), dtype, values.size()};
  gpu().copy(gpu_stream(), from.view(), halves);
  std::vector<std::uint16_t> bits(values.size());
  const auto bytes = room.values();
  std::memcpy(bits.data(), bytes.data(), bits.size() * 2);
  return bits;
}

TEST_F(GpuMoveAny, ConvertRoundsToHalvesAsIeeeSays) {
  // 1 + 2^-11 is halfway between two halves and goes to the even one; 1 + 3 * 2^-11 goes up.
  const std::vector<float> values{
      0.0f,     -0.0f,    1.0f,       -2.5f,    65504.0f,     65519.9f,     65520.0f,        1e30f,
      0x1p-24f, 0x1p-25f, 0x1.8p-25f, 0x1p-14f, 1 + 0x1p-11f, 1 + 0x3p-11f, float(kInfinity)};
  EXPECT_EQ(
      rounded_on_gpu(values, DType::float16),
      (std::vector<std::uint16_t>{0x0000, 0x8000, 0x3c00, 0xc100, 0x7bff, 0x7bff, 0x7c00, 0x7c00,
                                  0x0001, 0x0000, 0x0001, 0x0400, 0x3c00, 0x3c02, 0x7c00}));
  EXPECT_EQ(rounded_on_gpu({1.0f, 1 + 0x1p-8f, 1 + 0x3p-8f, -3.0f, 3.4e38f, float(kInfinity)},
                           DType::bfloat16),
            (std::vector<std::uint16_t>{0x3f80, 0x3f80, 0x3f82, 0xc040, 0x7f80, 0x7f80}));
  const auto nan = rounded_on_gpu({float(kNaN)}, DType::float16)[0];
  EXPECT_GT(nan & 0x7fff, 0x7c00);
}

TEST_F(GpuMoveAny, HalvesSurviveTheWayToFloatAndBack) {
  for (const DType dtype : {DType::float16, DType::bfloat16}) {
    std::vector<float> room(32768);  // 65536 halves: all there are
    std::vector<std::uint16_t> all(65536);
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint16_t>(i);
    std::memcpy(room.data(), all.data(), 2 * all.size());
    OnGpu<float> halves(room), again(room.size()), floats(all.size());
    gpu().copy(gpu_stream(), TensorView{halves.data(), dtype, all.size()}, floats.view());
    gpu().copy(gpu_stream(), floats.view(), TensorView{again.data(), dtype, all.size()});
    std::vector<std::uint16_t> result(all.size());
    const auto bytes = again.values();
    std::memcpy(result.data(), bytes.data(), 2 * result.size());
    const auto wide = floats.values();
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (!std::isnan(wide[i])) {
        ASSERT_EQ(result[i], all[i]);
      }
    }
  }
}

template <typename T>
class GpuGather : public GpuTest {};
using Sources = ::testing::Types<float, double, std::uint8_t>;
TYPED_TEST_SUITE(GpuGather, Sources);

TYPED_TEST(GpuGather, PicksConvertsAndScalesRows) {
  using From = TypeParam;
  for (const std::size_t cols : {1u, 3u, 31u, 784u, 1030u}) {
    for (const std::size_t margin : {0u, 1u, 4u}) {
      Grid<From> source(100, cols, margin);
      const auto values = counted<From>(100 * cols);
      for (std::size_t i = 0; i < values.size(); ++i) source(i / cols, i % cols) = values[i];
      const std::vector<std::int64_t> indices{99, 0, 5, 5, 42, 17, 1, 98, 3};
      GridOnGpu<From> from(source);
      OnGpu<std::int64_t> rows(indices);
      GridOnGpu<float> to(Grid<float>(indices.size(), cols, margin));
      gpu().gather_rows(gpu_stream(), from.view(), rows.view(), to.view(), 1.0 / 255);
      const auto result = to.grid();
      for (std::size_t i = 0; i < indices.size(); ++i) {
        for (std::size_t j = 0; j < cols; ++j) {
          const From value = source(static_cast<std::size_t>(indices[i]), j);
          ASSERT_EQ(result(i, j), float(1.0 / 255) * static_cast<float>(value));
        }
      }
      ASSERT_TRUE(result.margin_is_untouched());
    }
  }
}

TEST_F(GpuMoveAny, GatherRowsReportsAnIndexOutsideTheSourceAndGoesOnAfterwards) {
  Grid<float> source(10, 5);
  GridOnGpu<float> from(source), to(Grid<float>(3, 5));
  for (const std::int64_t bad : {std::int64_t{10}, std::int64_t{-1}, std::int64_t{1} << 62}) {
    OnGpu<std::int64_t> indices(std::vector<std::int64_t>{1, bad, 2});
    gpu().gather_rows(gpu_stream(), from.view(), indices.view(), to.view(), 1);
    expect_error(ErrorCode::Shape, std::to_string(bad), [&] { to.grid(); });
  }
  OnGpu<std::int64_t> good(std::vector<std::int64_t>{1, 9, 2});
  gpu().gather_rows(gpu_stream(), from.view(), good.view(), to.view(), 2);
  EXPECT_EQ(to.grid()(1, 4), 2 * Grid<float>::kMargin);
}

}  // namespace
}  // namespace lockstep::kernels
