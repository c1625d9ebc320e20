#include "reference.h"

namespace lockstep::kernels {
namespace {

template <typename T>
class Matmul : public ::testing::Test {};
TYPED_TEST_SUITE(Matmul, Floating);

struct Sizes {
  std::size_t rows, cols, depth;
};
// Around the panels (14 x 32 and less), the blocks (256 columns) and the depth cut (384); the last
// is packed where its first factor is transposed.
constexpr Sizes kProducts[] = {{0, 3, 4},     {3, 0, 4},    {3, 4, 0},      {1, 1, 1},
                               {1, 33, 7},    {7, 1, 31},   {3, 7, 31},     {15, 17, 33},
                               {31, 33, 385}, {64, 300, 5}, {129, 10, 769}, {100, 257, 1000},
                               {701, 9, 384}};

// op(a) * op(b) + start, by the definition.
template <typename T>
std::vector<double> reference(const Grid<T>& a, Transpose ta, const Grid<T>& b, Transpose tb,
                              const Sizes& s, double start) {
  std::vector<double> result;
  const std::size_t a_step = ta == Transpose::yes ? a.leading_dimension : 1;
  const std::size_t b_step = tb == Transpose::yes ? 1 : b.leading_dimension;
  for (std::size_t i = 0; i < s.rows; ++i) {
    for (std::size_t j = 0; j < s.cols; ++j) {
      const T* left = a.values.data() + (ta == Transpose::yes ? i : i * a.leading_dimension);
      const T* right = b.values.data() + (tb == Transpose::yes ? j * b.leading_dimension : j);
      double sum = start;
      for (std::size_t k = 0; k < s.depth; ++k) {
        sum += double(left[k * a_step]) * double(right[k * b_step]);
      }
      result.push_back(sum);
    }
  }
  return result;
}

template <typename T>
Grid<T> factor(std::size_t rows, std::size_t cols, Transpose transpose, std::uint64_t seed) {
  return transpose == Transpose::yes ? random_grid<T>(cols, rows, 5, seed)
                                     : random_grid<T>(rows, cols, 3, seed);
}

template <typename T>
void expect_matches(Transpose ta, Transpose tb, Write write) {
  for (const Sizes& s : kProducts) {
    SCOPED_TRACE(::testing::Message() << s.rows << " x " << s.cols << " x " << s.depth);
    auto a = factor<T>(s.rows, s.depth, ta, 1);
    auto b = factor<T>(s.depth, s.cols, tb, 2);
    const auto expected = reference(a, ta, b, tb, s, write == Write::accumulate ? 3 : 0);
    for_thread_counts([&](Stream& stream) {
      Grid<T> c(s.rows, s.cols, 2);
      for (std::size_t i = 0; i < s.rows; ++i) {
        for (std::size_t j = 0; j < s.cols; ++j) c(i, j) = write == Write::accumulate ? T(3) : kNaN;
      }
      cpu().matmul(stream, a.view(), ta, b.view(), tb, c.view(), write);
      expect_close(c.content(), expected, kTolerance<T>, 1 + double(s.depth));
      EXPECT_TRUE(c.margin_is_untouched());
    });
  }
}

TYPED_TEST(Matmul, EqualsTheDefinitionForEveryTransposition) {
  for (const Transpose ta : {Transpose::no, Transpose::yes}) {
    for (const Transpose tb : {Transpose::no, Transpose::yes}) {
      SCOPED_TRACE(::testing::Message() << int(ta) << int(tb));
      expect_matches<TypeParam>(ta, tb, Write::overwrite);
    }
  }
}

TYPED_TEST(Matmul, AddsToTheResultWhenAsked) {
  expect_matches<TypeParam>(Transpose::no, Transpose::no, Write::accumulate);
  expect_matches<TypeParam>(Transpose::yes, Transpose::yes, Write::accumulate);
}

TYPED_TEST(Matmul, HasTheSameBitsForAnyNumberOfThreadsAndAnyOtherRows) {
  auto a = random_grid<TypeParam>(200, 900, 0, 1);
  auto b = random_grid<TypeParam>(100, 900, 0, 2);
  Grid<TypeParam> first(200, 100);
  cpu().matmul(stream_with(1), a.view(), Transpose::no, b.view(), Transpose::yes, first.view(),
               Write::overwrite);
  for_thread_counts([&](Stream& stream) {
    Grid<TypeParam> c(200, 100);
    cpu().matmul(stream, a.view(), Transpose::no, b.view(), Transpose::yes, c.view(),
                 Write::overwrite);
    EXPECT_EQ(c.values, first.values);
    for (std::size_t i = 0; i < 200; i += 37) {
      Array<TypeParam> row(100);
      auto one = a.view();
      one.data = &a(i, 0);
      one.rows = 1;
      cpu().matmul(stream, one, Transpose::no, b.view(), Transpose::yes,
                   matrix_view(row.values.data(), dtype_of<TypeParam>, 1, 100), Write::overwrite);
      EXPECT_TRUE(std::equal(row.values.begin(), row.values.end(), &first(i, 0)));
    }
  });
}

TYPED_TEST(Matmul, BroadcastsAFactorOverTheBatch) {
  using T = TypeParam;
  constexpr std::size_t kBatch = 3;
  auto a = random_array<T>(kBatch * 5 * 4, 1);
  auto b = random_grid<T>(4, 6, 0, 2);
  Array<T> c(kBatch * 5 * 6);
  const MatrixView a_view{a.values.data(), dtype_of<T>, 5, 4, 4, kBatch, 20};
  const MatrixView c_view{c.values.data(), dtype_of<T>, 5, 6, 6, kBatch, 30};
  cpu().matmul(stream_with(2), a_view, Transpose::no, b.view(), Transpose::no, c_view,
               Write::overwrite);
  for (std::size_t n = 0; n < kBatch; ++n) {
    Grid<T> part(5, 4);
    std::copy_n(a.values.begin() + long(20 * n), 20, part.values.begin());
    const auto expected = reference(part, Transpose::no, b, Transpose::no, {5, 6, 4}, 0);
    expect_close(
        std::vector<T>(c.values.begin() + long(30 * n), c.values.begin() + long(30 * n + 30)),
        expected, kTolerance<T>, 4);
  }
}

TYPED_TEST(Matmul, CarriesNaNAndInfinityThrough) {
  Grid<TypeParam> a(2, 2), b(2, 1), c(2, 1);
  a.values = {TypeParam(kNaN), 0, TypeParam(kInfinity), 1};
  b.values = {1, 1};
  cpu().matmul(stream_with(1), a.view(), Transpose::no, b.view(), Transpose::no, c.view(),
               Write::overwrite);
  EXPECT_TRUE(std::isnan(c(0, 0)));
  EXPECT_EQ(c(1, 0), TypeParam(kInfinity));
}

}  // namespace
}  // namespace lockstep::kernels
