#include "reference.h"

namespace lockstep::kernels {
namespace {

template <typename T>
class Elementwise : public ::testing::Test {};
TYPED_TEST_SUITE(Elementwise, Floating);

// Compares run(stream, a, b, y), where y begins as b, with expected(a, b), for all sizes, aligned
// and not.
template <typename T, typename Run, typename Expected>
void expect_elementwise(const Run& run, const Expected& expected) {
  for (const std::size_t size : kSizes) {
    SCOPED_TRACE(::testing::Message() << size << " elements");
    const auto a = random_values<T>(size, 1), b = random_values<T>(size, 2);
    std::vector<double> reference;
    for (std::size_t i = 0; i < size; ++i) {
      reference.push_back(expected(double(a[i]), double(b[i])));
    }
    for (const std::size_t skew : {0u, 1u}) {
      for_thread_counts([&](Stream& stream) {
        const OnDevice<T> on_a(a, skew), on_b(b), y(b, skew);
        run(stream, on_a.view(), on_b.view(), y.view());
        expect_close(y.values(), reference);
      });
    }
  }
}

TYPED_TEST(Elementwise, ArithmeticEqualsTheDefinition) {
  expect_elementwise<TypeParam>(
      [](Stream& s, auto a, auto b, auto y) {
        tested().add(s, {a, b, y});
      },
      [](double a, double b) { return a + b; });
  expect_elementwise<TypeParam>(
      [](Stream& s, auto a, auto b, auto y) {
        tested().multiply(s, {a, b, y});
      },
      [](double a, double b) { return a * b; });
  expect_elementwise<TypeParam>(
      [](Stream& s, auto a, auto, auto y) {
        tested().scale(s, {a, 0.75, y});
      },
      [](double a, double) { return 0.75 * a; });
  expect_elementwise<TypeParam>(
      [](Stream& s, auto a, auto, auto y) {
        tested().axpy(s, {-1.5, a, y});
      },
      [](double a, double b) { return b - 1.5 * a; });
}

// --- ordered_reduce: the same bits everywhere

template <typename T>
using Sources = std::vector<std::vector<T>>;

template <typename T>
Sources<T> random_sources(std::size_t count, std::size_t size) {
  Sources<T> sources;
  for (std::size_t s = 0; s < count; ++s) sources.push_back(random_values<T>(size, s));
  return sources;
}

// The sum as the contract defines it: each source times the factor, added from the left.
template <typename T>
std::vector<T> plain_sum(const Sources<T>& sources, double factor) {
  std::vector<T> result(sources[0].size());
  for (std::size_t i = 0; i < result.size(); ++i) {
    volatile T sum = static_cast<T>(factor) * sources[0][i];
    for (std::size_t s = 1; s < sources.size(); ++s) {
      volatile T product = static_cast<T>(factor) * sources[s][i];
      sum = sum + product;
    }
    result[i] = sum;
  }
  return result;
}

// Source number s, if skewed, misses its alignment by s elements.
template <typename T>
struct SourcesOnDevice {
  SourcesOnDevice(const Sources<T>& sources, bool are_skewed) {
    for (std::size_t s = 0; s < sources.size(); ++s) {
      arrays.push_back(std::make_unique<OnDevice<T>>(sources[s], are_skewed ? s : 0));
      views.push_back(arrays.back()->view());
    }
  }
  std::vector<std::unique_ptr<OnDevice<T>>> arrays;
  std::vector<ConstTensorView> views;
};

TYPED_TEST(Elementwise, OrderedSumHasAPlainLoopsBits) {
  using T = TypeParam;
  for (const std::size_t size : kSizes) {
    for (const std::size_t num_sources : {1u, 2u, 3u, 8u, 9u, 20u}) {
      SCOPED_TRACE(::testing::Message() << num_sources << " sources of " << size);
      const auto sources = random_sources<T>(num_sources, size);
      const SourcesOnDevice<T> on_device(sources, num_sources == 3);
      for (const double factor : {1.0, 1.0 / 3}) {
        const auto expected = plain_sum(sources, factor);
        for_thread_counts([&](Stream& stream) {
          const OnDevice<T> y(size);
          tested().ordered_reduce(stream, {on_device.views, factor, y.view()});
          ASSERT_EQ(y.values(), expected);
        });
      }
    }
  }
}

TYPED_TEST(Elementwise, OrderedSumMayOverwriteAnySource) {
  using T = TypeParam;
  // The largest is beyond a CPU's cache, where its kernel is another.
  for (const std::size_t size : {std::size_t{33}, std::size_t{1000}, (std::size_t{3} << 20) + 5}) {
    const auto sources = random_sources<T>(2, size);
    const auto expected = plain_sum(sources, 0.5);
    for (std::size_t target = 0; target < 2; ++target) {
      const SourcesOnDevice<T> on_device(sources, false);
      const OnDevice<T>& y = *on_device.arrays[target];
      tested().ordered_reduce(stream_with(2), {on_device.views, 0.5, y.view()});
      EXPECT_TRUE(y.values() == expected) << size << " elements into source " << target;
    }
  }
}

TEST(ElementwiseAny, OrderedSumAddsIntegersWithFactorOne) {
  const OnDevice<std::int64_t> a(std::vector<std::int64_t>{1, std::int64_t{1} << 60}), y(2);
  const std::vector<ConstTensorView> views{a.view(), a.view(), a.view()};
  tested().ordered_reduce(stream(), {views, 1, y.view()});
  EXPECT_EQ(y.values(), (std::vector<std::int64_t>{3, std::int64_t{3} << 60}));
  const OnDevice<std::int32_t> b(std::vector<std::int32_t>{-7}), z(1);
  tested().ordered_reduce(stream(),
                          {std::vector<ConstTensorView>{b.view(), b.view()}, 1, z.view()});
  EXPECT_EQ(z.values(), std::vector<std::int32_t>{-14});
}

// Reduces three sources, the second of which lies in y, into y and a copy.
template <typename T>
std::vector<T> reduced(ReduceOp op, const Sources<T>& sources) {
  const SourcesOnDevice<T> on_device(sources, false);
  const OnDevice<T>& y = *on_device.arrays[1];
  const OnDevice<T> copy(sources[0].size());
  const TensorView copies[] = {copy.view()};
  tested().ordered_reduce(stream(), {on_device.views, 1, y.view(), op, copies});
  const auto is_same = [](T a, T b) { return a == b || (a != a && b != b); };
  EXPECT_TRUE(std::ranges::equal(copy.values(), y.values(), is_same));
  return y.values();
}

TYPED_TEST(Elementwise, OrderedReduceTakesProductMinAndMaxAndFillsCopies) {
  using T = TypeParam;
  for (const std::size_t size : kSizes) {
    const auto sources = random_sources<T>(3, size);
    const auto expect_by = [&](ReduceOp op, const auto& combine) {
      std::vector<T> expected = sources[0];
      for (std::size_t i = 0; i < size; ++i) {
        for (std::size_t s = 1; s < 3; ++s) expected[i] = combine(expected[i], sources[s][i]);
      }
      EXPECT_EQ(reduced(op, sources), expected);
    };
    expect_by(ReduceOp::product, [](T a, T b) { return a * b; });
    expect_by(ReduceOp::min, [](T a, T b) { return std::min(a, b); });
    expect_by(ReduceOp::max, [](T a, T b) { return std::max(a, b); });
  }
}

TEST(ElementwiseAny, MinAndMaxKeepANanAndProductsOfIntegersWrapAround) {
  const float nan = std::nanf("");
  for (const ReduceOp op : {ReduceOp::min, ReduceOp::max}) {
    const auto kept = reduced<float>(op, {{nan, 1, 1}, {1, nan, 1}, {1, 1, nan}});
    EXPECT_TRUE(std::ranges::all_of(kept, [](float x) { return std::isnan(x); }));
  }
  EXPECT_EQ((reduced<std::int32_t>(ReduceOp::product, {{-3, 1 << 30}, {5, 2}, {-7, 3}})),
            (std::vector<std::int32_t>{105, std::numeric_limits<std::int32_t>::min()}));
  EXPECT_EQ((reduced<std::int64_t>(ReduceOp::min, {{-3, 4}, {5, 2}, {-7, 3}})),
            (std::vector<std::int64_t>{-7, 2}));
}

}  // namespace
}  // namespace lockstep::kernels
