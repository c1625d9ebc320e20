// Tensors that a communicator's links do not reach, carried over memory that they do reach: on CUDA
// devices over a communicator of host tensors; on the CPU everything is passed on.
#include "engine/comm/communicator.h"

#include <gmock/gmock.h>

#include <thread>

#include "engine/comm/thread_group.h"
#include "tests/engine/comm/comm_test_data.h"

namespace lockstep::comm {
namespace {

// Runs fn as every rank of a group whose inner communicator moves host tensors.
void run_staged(int world_size, const std::function<void(Communicator&)>& fn) {
  std::vector<std::thread> threads;
  for (auto& inner : make_thread_group(world_size)) {
    threads.emplace_back(
        [&fn, mine = std::move(inner)]() mutable { fn(*through_host(std::move(mine), Device{})); });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(ThroughHost, CarriesEveryCollective) {
  constexpr std::array kTypes{DType::float32, DType::float64};
  run_staged(2, [&](Communicator& communicator) {
    check_all_reduces(communicator, kTypes, test_device(communicator.rank()));
    check_moves(communicator, kTypes, test_device(communicator.rank()));
  });
}

TEST(ThroughHost, HandsTimeLimitPlanAndNameOn) {
  run_staged(2, [](Communicator& communicator) {
    EXPECT_THAT(communicator.description(),
                ::testing::HasSubstr("over thread, staged in host memory"));
    EXPECT_NE(communicator.plan_for(1000), plan::AllReducePlan::automatic);
    communicator.set_default_plan(plan::AllReducePlan::tree);
    EXPECT_EQ(communicator.plan_for(1000), plan::AllReducePlan::tree);
    communicator.set_timeout_seconds(7);
    communicator.barrier().wait();
  });
}

}  // namespace
}  // namespace lockstep::comm
