#include "engine/core/half.h"
#include "kernels/matmul_precision.h"
#include "reference.h"

namespace lockstep::kernels {
namespace {

// Untuned, so that the bits of a result do not depend on the clock.
template <typename T>
class Matmul : public ::testing::Test {
  UntunedScope untuned_;
};
TYPED_TEST_SUITE(Matmul, Floating);

struct Sizes {
  std::size_t rows, cols, depth;
};
// Around the CPU's panels (14 x 32 and less), blocks (256 columns) and depth cut (384); the last
// is packed where its first factor is transposed.
constexpr Sizes kProducts[] = {{0, 3, 4},     {3, 0, 4},    {3, 4, 0},      {1, 1, 1},
                               {1, 33, 7},    {7, 1, 31},   {3, 7, 31},     {15, 17, 33},
                               {31, 33, 385}, {64, 300, 5}, {129, 10, 769}, {100, 257, 1000},
                               {701, 9, 384}};

// op(a) * op(b) + start, by the definition.
template <typename T>
std::vector<double> product(const Grid<T>& a, Transpose ta, const Grid<T>& b, Transpose tb,
                            const Sizes& s, double start = 0) {
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
void expect_product(Transpose ta, Transpose tb, Write write) {
  for (const Sizes& s : kProducts) {
    SCOPED_TRACE(::testing::Message() << s.rows << " x " << s.cols << " x " << s.depth);
    const auto a = factor<T>(s.rows, s.depth, ta, 1), b = factor<T>(s.depth, s.cols, tb, 2);
    const bool adds = write == Write::accumulate;
    Grid<T> before(s.rows, s.cols, 2);
    for (std::size_t i = 0; i < s.rows; ++i) {
      for (std::size_t j = 0; j < s.cols; ++j) before(i, j) = adds ? T(3) : T(kNaN);
    }
    const auto expected = product(a, ta, b, tb, s, adds ? 3 : 0);
    for_thread_counts([&](Stream& stream) {
      const GridOnDevice<T> on_a(a), on_b(b), c(before);
      tested().matmul(stream, {on_a.view(), ta, on_b.view(), tb, c.view(), write});
      expect_close(c.content(), expected, kProductTolerance<T>, 1 + double(s.depth));
    });
  }
}

TYPED_TEST(Matmul, EqualsTheDefinitionForEveryTransposition) {
  for (const Transpose ta : {Transpose::no, Transpose::yes}) {
    for (const Transpose tb : {Transpose::no, Transpose::yes}) {
      SCOPED_TRACE(::testing::Message() << int(ta) << int(tb));
      expect_product<TypeParam>(ta, tb, Write::overwrite);
    }
  }
}

TYPED_TEST(Matmul, AddsToTheResultWhenAsked) {
  expect_product<TypeParam>(Transpose::no, Transpose::no, Write::accumulate);
  expect_product<TypeParam>(Transpose::yes, Transpose::yes, Write::accumulate);
}

TYPED_TEST(Matmul, HasTheSameBitsForAnyThreads) {
  using T = TypeParam;
  LOCKSTEP_CPU_ONLY("a GPU's library adds up a single row in another order");
  const GridOnDevice<T> a(random_grid<T>(200, 900, 0, 1)), b(random_grid<T>(100, 900, 0, 2));
  const auto times_b = [&](Stream& stream, const ConstMatrixView& rows) {
    const GridOnDevice<T> c(rows.rows, 100);
    tested().matmul(stream,
                    {rows, Transpose::no, b.view(), Transpose::yes, c.view(), Write::overwrite});
    return c.content();
  };
  const auto first = times_b(stream(), a.view());
  for_thread_counts([&](Stream& stream) {
    EXPECT_EQ(times_b(stream, a.view()), first);
    for (std::size_t i = 0; i < 200; i += 37) {
      MatrixView row = a.view();
      row.data = static_cast<T*>(row.data) + i * 900;
      row.rows = 1;
      const auto alone = times_b(stream, row);
      EXPECT_TRUE(std::equal(alone.begin(), alone.end(), first.begin() + long(100 * i)));
    }
  });
}

// batch matrices of [4, 3] or one for all, times batch of [3, 5] or one for all.
template <typename T>
void expect_batches(std::size_t batch_a, std::size_t batch_b, Write write) {
  SCOPED_TRACE(::testing::Message() << batch_a << " times " << batch_b);
  constexpr std::size_t kBatch = 7, kStepA = 14, kStepB = 16, kStepC = 23;  // with gaps
  const auto a = random_values<T>(batch_a * kStepA, 1), b = random_values<T>(batch_b * kStepB, 2);
  const OnDevice<T> on_a(a), on_b(b), on_c(kBatch * kStepC, T(2));
  constexpr DType kType = dtype_of<T>;
  tested().matmul(stream_with(2), {{on_a.data(), kType, 4, 3, 3, batch_a, kStepA},
                                   Transpose::no,
                                   {on_b.data(), kType, 3, 5, 5, batch_b, kStepB},
                                   Transpose::no,
                                   {on_c.data(), kType, 4, 5, 5, kBatch, kStepC},
                                   write});
  std::vector<double> expected(kBatch * kStepC, 2);
  for (std::size_t n = 0; n < kBatch; ++n) {
    Grid<T> left(4, 3), right(3, 5);
    std::copy_n(&a[n % batch_a * kStepA], 12, left.values.begin());
    std::copy_n(&b[n % batch_b * kStepB], 15, right.values.begin());
    const auto one = product(left, Transpose::no, right, Transpose::no, {4, 5, 3},
                             write == Write::accumulate ? 2 : 0);
    std::copy(one.begin(), one.end(), expected.begin() + long(n * kStepC));
  }
  expect_close(on_c.values(), expected, kProductTolerance<T>, 4);
}

TYPED_TEST(Matmul, MultipliesBatchesAndBroadcastsAFactor) {
  for (const Write write : {Write::overwrite, Write::accumulate}) {
    expect_batches<TypeParam>(7, 7, write);
    expect_batches<TypeParam>(1, 7, write);
    expect_batches<TypeParam>(7, 1, write);
    expect_batches<TypeParam>(1, 1, write);
  }
}

TYPED_TEST(Matmul, AnInnerSizeOfZeroZeroesTheBatch) {
  using T = TypeParam;
  const OnDevice<T> c(std::vector<T>(3 * 8, T(5)));
  constexpr DType kType = dtype_of<T>;
  const MatrixView view{c.data(), kType, 2, 3, 4, 3, 8};
  const ConstMatrixView a{c.data(), kType, 2, 0, 1, 1, 0}, b{c.data(), kType, 0, 3, 3, 1, 0};
  tested().matmul(stream(), {a, Transpose::no, b, Transpose::no, view, Write::accumulate});
  EXPECT_EQ(c.values(), std::vector<T>(24, T(5)));
  tested().matmul(stream(), {a, Transpose::no, b, Transpose::no, view, Write::overwrite});
  std::vector<T> expected;
  for (int i = 0; i < 6; ++i) expected.insert(expected.end(), {0, 0, 0, 5});
  EXPECT_EQ(c.values(), expected);
}

float in_bfloat16(float value) {
  return static_cast<float>(Bfloat16(value));
}

TEST(MatmulInBfloat16, EqualsTheProductOfRoundedFactors) {
  for (const Transpose ta : {Transpose::no, Transpose::yes}) {
    for (const Transpose tb : {Transpose::no, Transpose::yes}) {
      for (const Sizes& s : kProducts) {
        SCOPED_TRACE(::testing::Message() << s.rows << " x " << s.cols << " x " << s.depth);
        auto a = factor<float>(s.rows, s.depth, ta, 1), b = factor<float>(s.depth, s.cols, tb, 2);
        const GridOnDevice<float> on_a(a), on_b(b), on_c(s.rows, s.cols, 2);
        set_matmul_precision(MatmulPrecision::bf16);
        tested().matmul(stream(),
                        {on_a.view(), ta, on_b.view(), tb, on_c.view(), Write::overwrite});
        set_matmul_precision(MatmulPrecision::highest);
        std::ranges::transform(a.values, a.values.begin(), in_bfloat16);
        std::ranges::transform(b.values, b.values.begin(), in_bfloat16);
        expect_close(on_c.content(), product(a, ta, b, tb, s), kProductTolerance<float>,
                     1 + double(s.depth));
      }
    }
  }
}

TEST(MatmulPrecisionWord, IsOneOfPyTorchs) {
  for (const char* word : {"highest", "high", "medium"}) {
    EXPECT_EQ(to_string(parse_matmul_precision(word)), word);
  }
  expect_error(ErrorCode::Usage, "'tf32' is not a precision; use highest",
               [] { parse_matmul_precision("tf32"); });
}

}  // namespace
}  // namespace lockstep::kernels
