#include "reference.h"

namespace lockstep::kernels {
namespace {

template <typename T>
class OrderedSum : public ::testing::Test {};
TYPED_TEST_SUITE(OrderedSum, Floating);

// The sum as the contract defines it: each source times the factor, added from the left.
template <typename T>
std::vector<T> plain_sum(const std::vector<Array<T>>& sources, double factor) {
  std::vector<T> result(sources[0].size());
  for (std::size_t i = 0; i < result.size(); ++i) {
    volatile T sum = static_cast<T>(factor) * sources[0].values[i];
    for (std::size_t s = 1; s < sources.size(); ++s) {
      volatile T product = static_cast<T>(factor) * sources[s].values[i];
      sum = sum + product;
    }
    result[i] = sum;
  }
  return result;
}

TYPED_TEST(OrderedSum, HasTheBitsOfAPlainLoop) {
  using T = TypeParam;
  for (const std::size_t size : kSizes) {
    for (const std::size_t num_sources : {1u, 2u, 3u, 8u}) {
      std::vector<Array<T>> sources;
      std::vector<ConstTensorView> views;
      for (std::size_t s = 0; s < num_sources; ++s) sources.push_back(random_array<T>(size, s));
      for (auto& source : sources) views.push_back(source.view());
      for (const double factor : {1.0, 1.0 / 3}) {
        const auto expected = plain_sum(sources, factor);
        for_thread_counts([&](Stream& stream) {
          Array<T> y(size);
          cpu().ordered_sum(stream, views, factor, y.view());
          ASSERT_EQ(y.values, expected) << num_sources << " sources of " << size;
        });
      }
    }
  }
}

TYPED_TEST(OrderedSum, MayOverwriteAnySource) {
  using T = TypeParam;
  for (std::size_t target = 0; target < 3; ++target) {
    for (const std::size_t size : kSizes) {
      std::vector<Array<T>> sources;
      for (std::size_t s = 0; s < 3; ++s) sources.push_back(random_array<T>(size, s));
      const auto expected = plain_sum(sources, 0.5);
      std::vector<ConstTensorView> views;
      for (auto& source : sources) views.push_back(source.view());
      cpu().ordered_sum(stream_with(2), views, 0.5, sources[target].view());
      ASSERT_EQ(sources[target].values, expected);
    }
  }
}

TYPED_TEST(OrderedSum, BeyondTheCacheEqualsThePlainLoop) {
  using T = TypeParam;
  constexpr std::size_t kSize = (std::size_t{3} << 20) + 5;
  std::vector<Array<T>> sources{random_array<T>(kSize, 1), random_array<T>(kSize, 2)};
  const std::vector<ConstTensorView> views{sources[0].view(), sources[1].view()};
  const auto expected = plain_sum(sources, 1);
  for_thread_counts([&](Stream& stream) {
    Array<T> y(kSize);
    cpu().ordered_sum(stream, views, 1, y.view());
    EXPECT_TRUE(y.values == expected);
    auto in_place = sources[0];
    const std::vector<ConstTensorView> own{in_place.view(), sources[1].view()};
    cpu().ordered_sum(stream, own, 1, in_place.view());
    EXPECT_TRUE(in_place.values == expected);
  });
}

TEST(OrderedSumOfIntegers, AddsThemWithFactorOne) {
  Array<std::int64_t> a(std::vector<std::int64_t>{1, 2}), b(std::vector<std::int64_t>{10, 20}),
      y(2);
  const std::vector<ConstTensorView> views{a.view(), b.view()};
  cpu().ordered_sum(stream_with(1), views, 1, y.view());
  EXPECT_EQ(y.values, (std::vector<std::int64_t>{11, 22}));
  expect_error(ErrorCode::DType, "int64",
               [&] { cpu().ordered_sum(stream_with(1), views, 0.5, y.view()); });
}

}  // namespace
}  // namespace lockstep::kernels
