#include "tests/engine/comm/comm_test_data.h"
#include "tests/engine/comm/nccl/nccl_ranks.h"

namespace lockstep::comm {
namespace {

using ::testing::HasSubstr;

class NcclCollectives : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override { LOCKSTEP_NEEDS_GPUS(GetParam()); }
};
INSTANTIATE_TEST_SUITE_P(WorldSizes, NcclCollectives, ::testing::Values(1, 2, 4));

TEST_P(NcclCollectives, AllReduceEveryOpInEveryTypeBlockingAndNot) {
  NcclRanks().run(GetParam(), [](Communicator& group) {
    check_all_reduces(group, kReducibleTypes, gpu_of(group));
  });
}

TEST_P(NcclCollectives, GatherScatterAndBroadcast) {
  constexpr std::array kTypes{DType::uint8, DType::bfloat16, DType::int64};
  NcclRanks().run(GetParam(),
                  [&](Communicator& group) { check_moves(group, kTypes, gpu_of(group)); });
}

TEST(NcclGroup, SaysWhichNcclItUsesAndLeavesThePlanToIt) {
  LOCKSTEP_NEEDS_GPUS(1);
  NcclRanks().run(1, [](Communicator& group) {
    EXPECT_THAT(group.description(), ::testing::MatchesRegex("nccl 2\\.[0-9]+\\.[0-9]+"));
    EXPECT_EQ(group.plan_for(100), plan::AllReducePlan::automatic);
  });
}

TEST(NcclGroup, RefusesTensorsOfOtherDevicesNamedPlansAndMessages) {
  LOCKSTEP_NEEDS_GPUS(1);
  const auto refuse = [](const std::function<void(Communicator&)>& fn) {
    return std::string(NcclRanks().errors_of(1, fn)[0].value().what());
  };
  EXPECT_THAT(refuse([](Communicator& group) { group.all_reduce(Tensor::zeros({2})); }),
              HasSubstr("this rank's NCCL communicator serves cuda:0, found"));
  EXPECT_THAT(refuse([](Communicator& group) {
                CollectiveOptions options;
                options.plan = plan::AllReducePlan::ring;
                group.all_reduce(Tensor::zeros({2}, DType::float32, gpu_of(group)), options);
              }),
              HasSubstr("NCCL chooses its own algorithm, found the plan ring"));
  EXPECT_THAT(
      refuse([](Communicator& group) {
        group.send(Tensor::zeros({2}, DType::float32, gpu_of(group)), 0);
      }),
      HasSubstr(
          "NCCL carries only collectives here; for messages use the engine's own communicator"));
}

}  // namespace
}  // namespace lockstep::comm
