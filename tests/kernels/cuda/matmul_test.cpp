// Products on the GPU against the CPU's in double.
#include "gpu_products.h"
#include "kernels/matmul_precision.h"

namespace lockstep::kernels {
namespace {

template <typename T>
class CudaMatmul : public GpuTest {};
TYPED_TEST_SUITE(CudaMatmul, Floating);

struct Sizes {
  std::size_t rows, cols, depth;
};
constexpr Sizes kProducts[] = {{0, 3, 4},   {3, 0, 4},    {3, 4, 0},    {1, 1, 1},
                               {1, 33, 7},  {33, 1, 31},  {3, 7, 31},   {31, 33, 65},
                               {64, 96, 5}, {129, 10, 3}, {10, 128, 64}};

template <typename T>
Grid<T> factor(std::size_t rows, std::size_t cols, Transpose transpose, std::uint64_t seed) {
  return transpose == Transpose::yes ? random_grid<T>(cols, rows, 5, seed)
                                     : random_grid<T>(rows, cols, 3, seed);
}

template <typename T>
Grid<T> filled(std::size_t rows, std::size_t cols, std::size_t margin, T value) {
  Grid<T> grid(rows, cols, margin);
  for (std::size_t i = 0; i < rows; ++i) {
    for (std::size_t j = 0; j < cols; ++j) grid(i, j) = value;
  }
  return grid;
}

template <typename T>
void expect_matches(Transpose ta, Transpose tb, Write write) {
  for (const Sizes& s : kProducts) {
    SCOPED_TRACE(::testing::Message() << s.rows << " x " << s.cols << " x " << s.depth);
    const auto a = factor<T>(s.rows, s.depth, ta, 1);
    const auto b = factor<T>(s.depth, s.cols, tb, 2);
    const T start = write == Write::accumulate ? T(3) : T(kNaN);
    auto wide_a = in_double(a), wide_b = in_double(b);
    auto expected = filled<double>(s.rows, s.cols, 0, double(start));
    cpu().matmul(stream_with(1), wide_a.view(), ta, wide_b.view(), tb, expected.view(), write);
    const GridOnGpu<T> on_a(a), on_b(b), c(filled<T>(s.rows, s.cols, 2, start));
    gpu().matmul(gpu_stream(), on_a.view(), ta, on_b.view(), tb, c.view(), write);
    const auto result = c.grid();
    EXPECT_LE(relative_error(result.content(), expected.values), kRelativeError<T>);
    EXPECT_TRUE(result.margin_is_untouched());
  }
}

TYPED_TEST(CudaMatmul, EqualsTheCpusForEveryTransposition) {
  for (const Transpose ta : {Transpose::no, Transpose::yes}) {
    for (const Transpose tb : {Transpose::no, Transpose::yes}) {
      SCOPED_TRACE(::testing::Message() << int(ta) << int(tb));
      expect_matches<TypeParam>(ta, tb, Write::overwrite);
    }
  }
}

TYPED_TEST(CudaMatmul, AddsToTheResultWhenAsked) {
  expect_matches<TypeParam>(Transpose::no, Transpose::no, Write::accumulate);
  expect_matches<TypeParam>(Transpose::yes, Transpose::yes, Write::accumulate);
}

TYPED_TEST(CudaMatmul, TakesFactorsThatBeginAnywhere) {
  using T = TypeParam;
  const auto a = random_grid<T>(9, 12, 0, 1), b = random_grid<T>(12, 5, 0, 2);
  auto wide_a = in_double(a), wide_b = in_double(b);
  Grid<double> expected(9, 5);
  cpu().matmul(stream_with(1), wide_a.view(), Transpose::no, wide_b.view(), Transpose::no,
               expected.view(), Write::overwrite);
  for (std::size_t offset = 0; offset < 4; ++offset) {
    const GridOnGpu<T> on_a(a, offset), on_b(b, offset), c(Grid<T>(9, 5), offset);
    gpu().matmul(gpu_stream(), on_a.view(), Transpose::no, on_b.view(), Transpose::no, c.view(),
                 Write::overwrite);
    EXPECT_LE(relative_error(c.grid().values, expected.values), kRelativeError<T>) << offset;
  }
}

// batch matrices of [4, 3] or one for all, times batch of [3, 5] or one for all.
template <typename T>
void expect_batches(std::size_t batch_a, std::size_t batch_b, Write write) {
  SCOPED_TRACE(::testing::Message() << batch_a << " times " << batch_b);
  constexpr std::size_t kBatch = 7, kGapA = 2, kGapB = 1, kGapC = 3;
  auto a = random_array<T>(batch_a * (12 + kGapA), 1);
  auto b = random_array<T>(batch_b * (15 + kGapB), 2);
  Array<T> c(kBatch * (20 + kGapC), T(2));
  const auto multiply = [&](Backend& on, Stream& stream, DType dtype, void* a_data, void* b_data,
                            void* c_data) {
    on.matmul(stream, {a_data, dtype, 4, 3, 3, batch_a, 12 + kGapA}, Transpose::no,
              {b_data, dtype, 3, 5, 5, batch_b, 15 + kGapB}, Transpose::no,
              {c_data, dtype, 4, 5, 5, kBatch, 20 + kGapC}, write);
  };
  auto wide_a = in_double(a), wide_b = in_double(b), expected = in_double(c);
  multiply(cpu(), stream_with(1), DType::float64, wide_a.values.data(), wide_b.values.data(),
           expected.values.data());
  const OnGpu<T> on_a(a), on_b(b), on_c(c);
  multiply(gpu(), gpu_stream(), dtype_of<T>, on_a.view().data, on_b.view().data, on_c.view().data);
  EXPECT_LE(relative_error(on_c.values(), expected.values), kRelativeError<T>);
}

TYPED_TEST(CudaMatmul, MultipliesBatchesAndBroadcastsAFactor) {
  for (const Write write : {Write::overwrite, Write::accumulate}) {
    expect_batches<TypeParam>(7, 7, write);
    expect_batches<TypeParam>(1, 7, write);
    expect_batches<TypeParam>(7, 1, write);
    expect_batches<TypeParam>(1, 1, write);
  }
}

TYPED_TEST(CudaMatmul, AnInnerSizeOfZeroZeroesEveryMatrixOfABatch) {
  using T = TypeParam;
  const OnGpu<T> c(Array<T>(3 * 8, T(5)));
  const auto dtype = dtype_of<T>;
  const MatrixView view{c.view().data, dtype, 2, 3, 4, 3, 8};
  const ConstMatrixView a{c.view().data, dtype, 2, 0, 1, 1, 0}, b{a.data, dtype, 0, 3, 3, 1, 0};
  gpu().matmul(gpu_stream(), a, Transpose::no, b, Transpose::no, view, Write::accumulate);
  EXPECT_EQ(c.values(), std::vector<T>(24, T(5)));
  gpu().matmul(gpu_stream(), a, Transpose::no, b, Transpose::no, view, Write::overwrite);
  const std::vector<T> one{0, 0, 0, 5, 0, 0, 0, 5};
  std::vector<T> expected;
  for (int i = 0; i < 3; ++i) expected.insert(expected.end(), one.begin(), one.end());
  EXPECT_EQ(c.values(), expected);
}

class CudaMatmulPrecision : public GpuTest {
 protected:
  void TearDown() override { set_matmul_precision(MatmulPrecision::highest); }
};

// The relative error of a product of random matrices.
template <typename T>
double error_with(MatmulPrecision precision) {
  set_matmul_precision(precision);
  const auto a = random_grid<T>(40, 300, 0, 1), b = random_grid<T>(300, 50, 0, 2);
  auto wide_a = in_double(a), wide_b = in_double(b);
  Grid<double> expected(40, 50);
  cpu().matmul(stream_with(1), wide_a.view(), Transpose::no, wide_b.view(), Transpose::no,
               expected.view(), Write::overwrite);
  const GridOnGpu<T> on_a(a), on_b(b), c(Grid<T>(40, 50));
  gpu().matmul(gpu_stream(), on_a.view(), Transpose::no, on_b.view(), Transpose::no, c.view(),
               Write::overwrite);
  return relative_error(c.grid().values, expected.values);
}

TEST_F(CudaMatmulPrecision, EachWordKeepsItsPromise) {
  EXPECT_LE(error_with<float>(MatmulPrecision::highest), 1e-5);
  EXPECT_LE(error_with<float>(MatmulPrecision::high), 2e-3);
  EXPECT_LE(error_with<float>(MatmulPrecision::medium), 1e-2);
  EXPECT_LE(error_with<double>(MatmulPrecision::medium), 1e-13) << "always multiplied in full";
}

}  // namespace
}  // namespace lockstep::kernels
