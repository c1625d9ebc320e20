#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "engine/comm/thread_group.h"
#include "tests/engine/comm/comm_test_data.h"
#include "tests/support/run_ranks.h"

namespace lockstep::comm {
namespace {

using ::lockstep::testing::run_ranks;

class AllReduce : public ::testing::TestWithParam<int> {};

// Between threads, automatic is two_shot.
void expect_plan_bits(int world_size, std::size_t num_elements) {
  const PlanBits bits(world_size, num_elements, kPlans, plan::AllReducePlan::two_shot);
  run_ranks(world_size, [&](Communicator& communicator) { bits.expect_from(communicator); });
}

TEST_P(AllReduce, HasTheBitsOfTheSerialInterpreterOnEveryRankForEveryPlanAndLength) {
  for (const std::size_t num_elements : kLengths) expect_plan_bits(GetParam(), num_elements);
}

INSTANTIATE_TEST_SUITE_P(WorldSizes, AllReduce, ::testing::ValuesIn(kWorldSizes));

TEST(AllReduceLarge, HasTheBitsOfTheSerialInterpreterForBuffersOfManyPieces) {
  for (const int world_size : {2, 3}) expect_plan_bits(world_size, kLargeLength);
}

TEST(AllReduceOps, EveryOpAndDTypeEqualsTheDirectResultForEveryPlan) {
  constexpr std::array kLength{std::size_t{77}};
  for (const int world_size : {1, 2, 4, 8}) {  // powers of two: an average is exact
    run_ranks(world_size, [&](Communicator& communicator) {
      for (const plan::AllReducePlan plan : kPlans) {
        check_all_reduces(communicator, kReducibleTypes, test_device(communicator.rank()), plan,
                          kLength);
      }
    });
  }
}

TEST(AllReduceOps, AverageMultipliesEveryContributionBeforeItIsAdded) {
  constexpr std::size_t kNumElements = 1000;
  const plan::RankBuffers inputs = rounding_buffers(3, kNumElements);
  plan::RankBuffers expected = inputs;
  for (std::vector<double>& buffer : expected) {
    for (double& value : buffer) value *= 1.0 / 3;
  }
  for (const plan::AllReducePlan plan : kPlans) {
    const bool is_named = plan != plan::AllReducePlan::automatic;
    const plan::RankBuffers averaged =
        interpreted(is_named ? plan : plan::AllReducePlan::two_shot, expected);
    run_ranks(3, [&](Communicator& communicator) {
      const auto rank = static_cast<std::size_t>(communicator.rank());
      const Tensor buffer = tensor_of(inputs[rank], communicator.rank());
      CollectiveOptions options;
      options.op = ReduceOp::average;
      options.plan = plan;
      communicator.all_reduce(buffer, options);
      EXPECT_EQ(buffer.to_vector<double>(), averaged[rank]) << plan::to_string(plan);
    });
  }
}

// 256 + 7/4: with rounding after every addition, none of the quarters would count.
TEST(AllReduceOps, HalvesAreAddedUpInFloatAndRoundedOnce) {
  for (const DType dtype : {DType::bfloat16, DType::float16}) {
    run_ranks(8, [&](Communicator& communicator) {
      const double mine = communicator.rank() == 0 ? 256 : 0.25;
      const Tensor buffer = tensor_of({mine, mine, mine}, communicator.rank()).to(dtype);
      communicator.all_reduce(buffer);
      const double sum = dtype == DType::bfloat16 ? 258 : 257.75;
      EXPECT_EQ(buffer.to_vector<double>(), std::vector<double>(3, sum));
    });
  }
}

TEST(AllReduceOps, ANotANumberOfOneRankReachesAllRanks) {
  run_ranks(3, [&](Communicator& communicator) {
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::min, ReduceOp::max, ReduceOp::product}) {
      for (const int nan_rank : {0, 1, 2}) {
        const double value =
            communicator.rank() == nan_rank ? std::numeric_limits<double>::quiet_NaN() : 1.0;
        const Tensor buffer = tensor_of({value, 1.0, 2.0}, communicator.rank());
        CollectiveOptions options;
        options.op = op;
        communicator.all_reduce(buffer, options);
        EXPECT_TRUE(std::isnan(buffer.to_vector<double>()[0])) << static_cast<int>(op);
        EXPECT_FALSE(std::isnan(buffer.to_vector<double>()[1]));
      }
    }
  });
}

}  // namespace
}  // namespace lockstep::comm
