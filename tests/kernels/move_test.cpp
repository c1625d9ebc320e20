#include <cstring>

#include "reference.h"

namespace lockstep::kernels {
namespace {

template <typename T>
class Move : public ::testing::Test {};
using Numbers = ::testing::Types<float, double, std::int64_t, std::int32_t, std::uint8_t>;
TYPED_TEST_SUITE(Move, Numbers);

template <typename T>
std::vector<T> counted(std::size_t size) {
  std::vector<T> values(size);
  for (std::size_t i = 0; i < size; ++i) values[i] = static_cast<T>(i * 2654435761u % 251);
  return values;
}

template <typename T>
Grid<T> counted_grid(std::size_t rows, std::size_t cols, std::size_t margin) {
  Grid<T> grid(rows, cols, margin);
  const auto values = counted<T>(rows * cols);
  for (std::size_t i = 0; i < values.size(); ++i) grid(i / cols, i % cols) = values[i];
  return grid;
}

// One element before and one after that belong to nobody.
template <typename T>
std::vector<T> framed(std::vector<T> values) {
  values.insert(values.begin(), T(9));
  values.push_back(T(9));
  return values;
}

TYPED_TEST(Move, CopyAndFillReachTheirElementsOnly) {
  using T = TypeParam;
  for (const std::size_t size : kSizes) {
    for (const std::size_t skew : {0u, 1u, 3u}) {
      const auto values = counted<T>(size);
      for_thread_counts([&](Stream& stream) {
        const OnDevice<T> from(values, skew), memory(size + 2, T(9));
        const TensorView inner{memory.data() + 1, dtype_of<T>, size};
        tested().copy(stream, {from.view(), inner});
        ASSERT_EQ(memory.values(), framed(values));
        const OnDevice<T> aligned(size);
        tested().copy(stream, {from.view(), aligned.view()});
        ASSERT_EQ(aligned.values(), values);
        tested().fill(stream, {inner, 5});
        ASSERT_EQ(memory.values(), framed(std::vector<T>(size, T(5))));
      });
    }
  }
}

TEST(MoveAny, CopyBeyondTheCacheKeepsItsBounds) {
  const auto values = counted<float>((std::size_t{9} << 20) + 13);
  const OnDevice<float> from(values);
  for_thread_counts([&](Stream& stream) {
    const OnDevice<float> memory(values.size() + 2, 9);
    tested().copy(stream, {from.view(), {memory.data() + 1, DType::float32, values.size()}});
    EXPECT_TRUE(memory.values() == framed(values));
  });
}

TYPED_TEST(Move, CopyMatrixKeepsToItsColumns) {
  using T = TypeParam;
  for (const std::size_t rows : {0u, 1u, 33u, 500u}) {
    for (const std::size_t cols : {1u, 3u, 32u, 131u}) {
      for (const std::size_t margin : {0u, 3u, 16u}) {
        const auto from = counted_grid<T>(rows, cols, margin);
        const GridOnDevice<T> source(from);
        for (const std::size_t to_margin : {0u, 16u}) {
          const GridOnDevice<T> target(rows, cols, to_margin);
          tested().copy_matrix(stream_with(2), {source.view(), target.view()});
          ASSERT_EQ(target.content(), from.content());
        }
      }
    }
  }
}

TEST(MoveAny, CopyMatrixFollowsTheBatchStride) {
  const auto in = counted<float>(40);
  const OnDevice<float> from(in), to(30, -1);
  const MatrixView source{from.data(), DType::float32, 2, 3, 4, 3, 12};
  const MatrixView target{to.data(), DType::float32, 2, 3, 3, 3, 10};
  tested().copy_matrix(stream(), {source, target});
  std::vector<float> expected(30, -1);
  for (std::size_t b = 0; b < 3; ++b) {
    for (std::size_t i = 0; i < 2; ++i) {
      for (std::size_t j = 0; j < 3; ++j) expected[b * 10 + i * 3 + j] = in[b * 12 + i * 4 + j];
    }
  }
  EXPECT_EQ(to.values(), expected);
}

template <typename From, typename To>
void expect_converted(std::size_t size, std::size_t skew) {
  const auto values = counted<From>(size);
  const OnDevice<From> from(values, skew);
  const OnDevice<To> to(size);
  tested().copy(stream_with(2), {from.view(), to.view()});
  EXPECT_EQ(to.values(), std::vector<To>(values.begin(), values.end()));
}

TYPED_TEST(Move, CopyConvertsAsAStaticCast) {
  for (const std::size_t size : {0u, 1u, 3u, 33u, 100'003u}) {
    for (const std::size_t skew : {0u, 1u}) {
      expect_converted<TypeParam, float>(size, skew);
      expect_converted<TypeParam, double>(size, skew);
      expect_converted<TypeParam, std::int64_t>(size, skew);
      expect_converted<TypeParam, std::int32_t>(size, skew);
      expect_converted<TypeParam, std::uint8_t>(size, skew);
    }
  }
}

using Halves = std::vector<std::uint16_t>;

// Floats as the bits of a 16-bit type.
Halves rounded(const std::vector<float>& values, DType dtype) {
  const OnDevice<float> from(values), room(values.size());
  tested().copy(stream(), {from.view(), TensorView{room.data(), dtype, values.size()}});
  Halves bits(values.size());
  std::memcpy(bits.data(), room.values().data(), bits.size() * 2);
  return bits;
}

TEST(MoveAny, CopyRoundsToHalvesAsIeeeSays) {
  // 1 + 2^-11 is halfway between two halves and goes to the even one; 1 + 3 * 2^-11 goes up.
  EXPECT_EQ(rounded({0.0f, -0.0f, 1.0f, -2.5f, 65504.0f, 65519.9f, 65520.0f, 1e30f, 0x1p-24f,
                     0x1p-25f, 0x1.8p-25f, 0x1p-14f, 1 + 0x1p-11f, 1 + 0x3p-11f, float(kInfinity)},
                    DType::float16),
            (Halves{0x0000, 0x8000, 0x3c00, 0xc100, 0x7bff, 0x7bff, 0x7c00, 0x7c00, 0x0001, 0x0000,
                    0x0001, 0x0400, 0x3c00, 0x3c02, 0x7c00}));
  EXPECT_EQ(
      rounded({1.0f, 1 + 0x1p-8f, 1 + 0x3p-8f, -3.0f, 3.4e38f, float(kInfinity)}, DType::bfloat16),
      (Halves{0x3f80, 0x3f80, 0x3f82, 0xc040, 0x7f80, 0x7f80}));
  EXPECT_GT(rounded({float(kNaN)}, DType::float16)[0] & 0x7fff, 0x7c00);
}

template <typename From, typename To>
void expect_gathered() {
  for (const std::size_t cols : {1u, 3u, 31u, 784u, 1030u}) {
    for (const std::size_t margin : {0u, 1u, 4u}) {
      const auto source = counted_grid<From>(50, cols, margin);
      for (const std::size_t rows : {0u, 1u, 7u, 200u}) {
        std::vector<std::int64_t> indices;
        std::vector<To> expected;
        for (std::size_t i = 0; i < rows; ++i) {
          const std::size_t picked = i * 37 % 50;
          indices.push_back(std::int64_t(picked));
          for (std::size_t j = 0; j < cols; ++j) {
            const From value = source(picked, j);
            expected.push_back(std::is_same_v<From, std::uint8_t>
                                   ? static_cast<To>(1.0 / 255 * double(value))
                                   : To(1.0 / 255) * static_cast<To>(value));
          }
        }
        const GridOnDevice<From> from(source);
        const OnDevice<std::int64_t> on_device(indices);
        for_thread_counts([&](Stream& stream) {
          const GridOnDevice<To> to(rows, cols, margin);
          tested().gather_rows(stream, {from.view(), on_device.view(), to.view(), 1.0 / 255});
          ASSERT_EQ(to.content(), expected);
        });
      }
    }
  }
}

TEST(MoveAny, GatherRowsPicksConvertsAndScales) {
  expect_gathered<std::uint8_t, float>();
  expect_gathered<float, float>();
  expect_gathered<double, float>();
  expect_gathered<std::uint8_t, double>();
  expect_gathered<float, double>();
  expect_gathered<double, double>();
}

// ToTensor divides by 255 in float32.
TEST(MoveAny, GatherRowsMakesTheSameNumberOfEachByteAsPyTorch) {
  Grid<std::uint8_t> bytes(1, 256, 0);
  std::vector<float> expected;
  for (std::size_t i = 0; i < 256; ++i) {
    bytes.values[i] = static_cast<std::uint8_t>(i);
    expected.push_back(static_cast<float>(i) / 255.0F);
  }
  const GridOnDevice<std::uint8_t> from(bytes);
  const OnDevice<std::int64_t> first(std::vector<std::int64_t>{0});
  const GridOnDevice<float> to(1, 256);
  tested().gather_rows(stream(), {from.view(), first.view(), to.view(), 1.0 / 255});
  EXPECT_EQ(to.content(), expected);
}

// A CPU says so at the call, a GPU where its work is waited for next; both go on afterwards.
TEST(MoveAny, GatherRowsReportsAnIndexOutsideTheSource) {
  const GridOnDevice<float> from(counted_grid<float>(10, 5, 0)), to(3, 5);
  const auto gather = [&](std::int64_t second) {
    const OnDevice<std::int64_t> indices(std::vector<std::int64_t>{1, second, 2});
    tested().gather_rows(stream(), {from.view(), indices.view(), to.view(), 2});
    return to.content()[9];
  };
  for (const std::int64_t bad : {std::int64_t{10}, std::int64_t{-1}, std::int64_t{1} << 62}) {
    expect_error(ErrorCode::Shape, std::to_string(bad), [&] { gather(bad); });
  }
  EXPECT_EQ(gather(9), 2 * counted<float>(50)[49]);
}

}  // namespace
}  // namespace lockstep::kernels
