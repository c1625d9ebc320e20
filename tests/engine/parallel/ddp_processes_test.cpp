// DDP where ranks are processes: the weights that one device would have got.
//
// The test's own process trains on cpu:0 alone: threads of other devices would not survive fork().
#include <gtest/gtest.h>

#include "tests/engine/comm/process_ranks.h"
#include "tests/engine/parallel/training.h"

namespace lockstep::testing {
namespace {

using comm::TransportChoice;

constexpr std::array kPlans{plan::AllReducePlan::automatic,   plan::AllReducePlan::ring,
                            plan::AllReducePlan::tree,        plan::AllReducePlan::halving_doubling,
                            plan::AllReducePlan::one_shot,    plan::AllReducePlan::two_shot,
                            plan::AllReducePlan::hierarchical};

void expect_success(comm::ForkedGroup& group) {
  for (const RankEnd& end : group.ranks().join(120)) {
    EXPECT_EQ(end.exit_code, 0) << end.error;
    EXPECT_EQ(end.signal, 0);
  }
}

class DdpProcesses : public ::testing::TestWithParam<TransportChoice> {};
INSTANTIATE_TEST_SUITE_P(Transports, DdpProcesses,
                         ::testing::Values(TransportChoice::shm, TransportChoice::tcp),
                         [](const auto& param) { return std::string(to_string(param.param)); });

TEST_P(DdpProcesses, EveryPlanEndsWithOneDevicesWeights) {
  TrainingCase training;
  training.dtype = DType::float32;
  training.batches = {24, 17, 1, 9};
  const Weights reference = train_on_one_device(training);
  EXPECT_GT(largest_difference(weights_of(*make_model(training)), reference), 1e-2);
  for (const int world_size : {2, 3, 4, 8}) {
    comm::ForkedGroup group(
        world_size,
        [&](comm::Communicator& communicator) {
          for (const plan::AllReducePlan plan : kPlans) {
            communicator.set_default_plan(plan);
            const Weights weights = train_ddp_rank(training, communicator, Device{});
            EXPECT_LE(largest_difference(weights, reference), 1e-5) << plan::to_string(plan);
          }
        },
        comm::over(GetParam()));
    expect_success(group);
  }
}

TEST_P(DdpProcesses, EndWithTheSameBitsInBitwiseMode) {
  TrainingCase training;
  training.dtype = DType::float32;
  training.batches = {24, 17};
  const Weights reference = train_bitwise_data_parallel(training, 1);
  for (const int world_size : {2, 4, 8}) {
    comm::ForkedGroup group(
        world_size,
        [&](comm::Communicator& communicator) {
          EXPECT_EQ(train_bitwise_ddp_rank(training, communicator, Device{}), reference);
        },
        comm::over(GetParam()));
    expect_success(group);
  }
}

}  // namespace
}  // namespace lockstep::testing
