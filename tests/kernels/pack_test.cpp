#include "reference.h"

namespace lockstep::kernels {
namespace {

template <typename T>
class Pack : public ::testing::Test {};
TYPED_TEST_SUITE(Pack, Floating);

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

TYPED_TEST(Pack, OrderedSumHasTheBitsOfAPlainLoop) {
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

TYPED_TEST(Pack, OrderedSumMayOverwriteAnySource) {
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

TYPED_TEST(Pack, OrderedSumBeyondTheCacheEqualsThePlainLoop) {
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

TEST(PackIntegers, OrderedSumAddsThemWithFactorOne) {
  Array<std::int64_t> a(std::vector<std::int64_t>{1, 2}), b(std::vector<std::int64_t>{10, 20}),
      y(2);
  const std::vector<ConstTensorView> views{a.view(), b.view()};
  cpu().ordered_sum(stream_with(1), views, 1, y.view());
  EXPECT_EQ(y.values, (std::vector<std::int64_t>{11, 22}));
  expect_error(ErrorCode::DType, "int64",
               [&] { cpu().ordered_sum(stream_with(1), views, 0.5, y.view()); });
}

TYPED_TEST(Pack, PackScalesEachItemToItsPlaceAndUnpackBringsItBack) {
  using T = TypeParam;
  for_thread_counts([&](Stream& stream) {
    std::vector<Array<T>> tensors;
    for (const std::size_t size : kSizes) tensors.push_back(random_array<T>(size, size));
    std::vector<PackItem> items;
    std::size_t offset = 1;
    for (auto& tensor : tensors) {
      items.push_back({tensor.view(), offset});
      offset += tensor.size() + 1;
    }
    Array<T> bucket(offset, T(9));
    cpu().pack(stream, items, 0.25, bucket.view());
    const auto original = tensors;
    for (std::size_t n = 0; n < tensors.size(); ++n) {
      EXPECT_EQ(bucket[items[n].offset - 1], T(9));
      for (std::size_t i = 0; i < tensors[n].size(); ++i) {
        ASSERT_EQ(bucket[items[n].offset + i], T(0.25) * tensors[n][i]);
      }
    }
    cpu().multi_scale(stream, std::vector<TensorView>{bucket.view()}, 4);
    cpu().unpack(stream, bucket.view(), items);
    for (std::size_t n = 0; n < tensors.size(); ++n)
      EXPECT_EQ(tensors[n].values, original[n].values);
  });
}

TYPED_TEST(Pack, AnItemThatReachesBeyondTheBucketIsAnError) {
  Array<TypeParam> tensor(4), bucket(6);
  const std::vector<PackItem> items{{tensor.view(), 3}};
  expect_error(ErrorCode::Shape, "[pack]",
               [&] { cpu().pack(stream_with(1), items, 1, bucket.view()); });
  expect_error(ErrorCode::Shape, "[unpack]",
               [&] { cpu().unpack(stream_with(1), bucket.view(), items); });
}

TYPED_TEST(Pack, ABadItemIsFoundBeforeAnythingIsMoved) {
  Array<TypeParam> good(2, TypeParam(1)), bad(4), bucket(6, TypeParam(9));
  const std::vector<PackItem> items{{good.view(), 0}, {bad.view(), 3}};
  expect_error(ErrorCode::Shape, "[pack]",
               [&] { cpu().pack(stream_with(1), items, 1, bucket.view()); });
  EXPECT_EQ(bucket.values, std::vector<TypeParam>(6, TypeParam(9)));
  expect_error(ErrorCode::Shape, "[unpack]",
               [&] { cpu().unpack(stream_with(1), bucket.view(), items); });
  EXPECT_EQ(good.values, std::vector<TypeParam>(2, TypeParam(1)));
}

TYPED_TEST(Pack, MultiScaleReachesEveryTensor) {
  using T = TypeParam;
  for_thread_counts([&](Stream& stream) {
    std::vector<Array<T>> tensors;
    std::vector<TensorView> views;
    for (const std::size_t size : kSizes) tensors.push_back(random_array<T>(size, size));
    for (auto& tensor : tensors) views.push_back(tensor.view());
    const auto original = tensors;
    cpu().multi_scale(stream, views, 0.5);
    for (std::size_t n = 0; n < tensors.size(); ++n) {
      for (std::size_t i = 0; i < tensors[n].size(); ++i) {
        ASSERT_EQ(tensors[n][i], T(0.5) * original[n].values[i]);
      }
    }
  });
}

}  // namespace
}  // namespace lockstep::kernels
