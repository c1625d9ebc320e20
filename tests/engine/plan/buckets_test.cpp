#include "engine/plan/buckets.h"

#include "tests/engine/plan/plan_test_data.h"

namespace lockstep::plan {
namespace {

using ::testing::ElementsAre;
using Indices = std::vector<std::size_t>;

constexpr Device kCpu0{DeviceType::cpu, 0};
constexpr Device kCpu1{DeviceType::cpu, 1};

std::vector<BucketParameter> float32_parameters(std::initializer_list<std::size_t> sizes) {
  std::vector<BucketParameter> parameters;
  for (const std::size_t size : sizes) parameters.push_back({size, DType::float32, kCpu0});
  return parameters;
}

// float32 x 50 and float64 x 25 in turn, six of them, 200 bytes each.
std::vector<BucketParameter> alternating_parameters() {
  std::vector<BucketParameter> parameters;
  for (int i = 0; i < 3; ++i) {
    parameters.push_back({50, DType::float32, kCpu0});
    parameters.push_back({25, DType::float64, kCpu0});
  }
  return parameters;
}

Indices forward_order(std::size_t count) {
  Indices order(count);
  for (std::size_t i = 0; i < count; ++i) order[i] = i;
  return order;
}

std::vector<Indices> indices(const BucketPlan& plan) {
  std::vector<Indices> result;
  for (const Bucket& bucket : plan.buckets) result.push_back(bucket.parameters());
  return result;
}

// The buckets of parameters that enter in the order of their indices.
std::vector<Indices> buckets_of(const std::vector<BucketParameter>& parameters,
                                const std::vector<std::size_t>& byte_limits) {
  return indices(bucket_plan(parameters, forward_order(parameters.size()), {byte_limits}));
}

TEST(Buckets, OneLimitThatEveryParameterReaches) {
  EXPECT_THAT(buckets_of(float32_parameters({100, 200, 100, 50}), {400}),
              ElementsAre(Indices{0}, Indices{1}, Indices{2}, Indices{3}));
}

TEST(Buckets, EachDTypeHasItsOwnBuckets) {
  EXPECT_THAT(buckets_of(alternating_parameters(), {400}),
              ElementsAre(Indices{0, 2}, Indices{1, 3}, Indices{4}, Indices{5}));
}

TEST(Buckets, EachKeyGoesThroughTheLimitsByItselfAndStaysAtTheLast) {
  EXPECT_THAT(buckets_of(float32_parameters({10, 10, 10, 10, 10, 10}), {40, 80}),
              ElementsAre(Indices{0}, Indices{1, 2}, Indices{3, 4}, Indices{5}));
  EXPECT_THAT(buckets_of(alternating_parameters(), {200, 400}),
              ElementsAre(Indices{0}, Indices{1}, Indices{2, 4}, Indices{3, 5}));
}

TEST(Buckets, EachDeviceHasItsOwnBuckets) {
  const std::vector<BucketParameter> parameters{
      {50, DType::float32, kCpu0}, {50, DType::float32, kCpu1}, {50, DType::float32, kCpu0}};
  const BucketPlan plan = bucket_plan(parameters, forward_order(3));
  EXPECT_THAT(indices(plan), ElementsAre(Indices{1}, Indices{0, 2}));
  EXPECT_EQ(plan.buckets[0].device, kCpu1);
  EXPECT_EQ(plan.buckets[1].device, kCpu0);
}

TEST(Buckets, DefaultLimitsAreOneAndTwentyFiveMebibytes) {
  constexpr std::size_t kMebi = (std::size_t{1} << 20) / sizeof(float);
  EXPECT_EQ(BucketOptions{}.byte_limits, (std::vector<std::size_t>{1 << 20, 25 << 20}));
  const std::vector<BucketParameter> parameters =
      float32_parameters({kMebi - 1, 1, 24 * kMebi, kMebi - 1, 1, 5});
  EXPECT_THAT(indices(bucket_plan(parameters, forward_order(6))),
              ElementsAre(Indices{0, 1}, Indices{2, 3, 4}, Indices{5}));
}

TEST(Buckets, AreOrderedByTheirLastParameter) {
  // A small float64 parameter, whose bucket stays open to the end, comes first.
  const std::vector<BucketParameter> parameters{{1, DType::float64, kCpu0},
                                                {100, DType::float32, kCpu0},
                                                {100, DType::float32, kCpu0},
                                                {1, DType::float64, kCpu0}};
  EXPECT_THAT(indices(bucket_plan(parameters, forward_order(4), {{400}})),
              ElementsAre(Indices{1}, Indices{2}, Indices{0, 3}));
}

TEST(Buckets, AlignedSlotsBeginAtMultiplesOfTheAlignment) {
  BucketOptions options;
  options.alignment_bytes = 64;
  const BucketPlan plan = bucket_plan(float32_parameters({5, 16, 17}), forward_order(3), options);
  EXPECT_THAT(plan.buckets[0].slots,
              ElementsAre(BucketSlot{0, 0, 5}, BucketSlot{1, 16, 16}, BucketSlot{2, 32, 17}));
  EXPECT_EQ(plan.buckets[0].num_elements, 49u);
}

TEST(Buckets, RefuseAnOrderThatIsNone) {
  const std::vector<BucketParameter> parameters = float32_parameters({1, 2});
  expect_error(ErrorCode::Usage, "must name each of 2 parameters once, found 1 indices",
               [&] { bucket_plan(parameters, Indices{0}); });
  expect_error(ErrorCode::Usage, "found 0 twice", [&] { bucket_plan(parameters, Indices{0, 0}); });
  expect_error(ErrorCode::Usage, "found 2 in it", [&] { bucket_plan(parameters, Indices{0, 2}); });
}

TEST(Buckets, RefuseOptionsThatMeanNothing) {
  const std::vector<BucketParameter> parameters = float32_parameters({1});
  expect_error(ErrorCode::Usage, "at least one byte limit",
               [&] { bucket_plan(parameters, Indices{0}, {{}}); });
  BucketOptions options;
  options.alignment_bytes = 48;
  expect_error(ErrorCode::Usage, "power of two, found 48 bytes",
               [&] { bucket_plan(parameters, Indices{0}, options); });
}

TEST(Buckets, RefuseSizesWhoseSumWrapsAround) {
  constexpr std::size_t kHalf = std::size_t{1} << 60;
  const Indices both{0, 1};
  BucketOptions one_bucket;
  one_bucket.byte_limits = {static_cast<std::size_t>(-1)};
  const auto plan_of = [&](std::initializer_list<std::size_t> sizes) {
    return bucket_plan(float32_parameters(sizes), both, one_bucket);
  };
  EXPECT_EQ(plan_of({kHalf, 1}).buckets.size(), 1u);
  expect_error(ErrorCode::Shape,
               "[buckets] 2305843009213693952 times 4 is above 9223372036854775807", [&] {
                 plan_of({kHalf, kHalf});
               });
  const std::size_t large = static_cast<std::size_t>(-1) - 2;
  expect_error(ErrorCode::Shape,
               "[buckets] 4 plus 18446744073709551613 is above 9223372036854775807", [&] {
                 plan_of({4, large});
               });
}

TEST(Buckets, PrintALinePerParameter) {
  EXPECT_EQ(to_string(bucket_plan(float32_parameters({5, 3}), reverse_order(2), {{8}})),
            "bucket 0: float32 on cpu:0, 1 parameters, 12 B\n"
            "  parameter 1: elements [0, 3), 12 B\n"
            "bucket 1: float32 on cpu:0, 1 parameters, 20 B\n"
            "  parameter 0: elements [0, 5), 20 B\n");
}

}  // namespace
}  // namespace lockstep::plan
