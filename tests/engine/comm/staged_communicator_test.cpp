// Tensors that a communicator's links do not reach, carried over memory that they do reach: on CUDA
// devices over a communicator of host tensors; on the CPU everything is passed on.
#include "engine/comm/communicator.h"

#include <gmock/gmock.h>

#include <thread>

#include "engine/comm/thread_group.h"
#include "tests/support/devices.h"

namespace lockstep::comm {
namespace {

using ::lockstep::testing::test_device;
using ::testing::Each;
using ::testing::ElementsAre;

// Runs fn as every rank of a group whose inner communicator moves host tensors.
void run_staged(int world_size, const std::function<void(Communicator&)>& fn) {
  std::vector<std::thread> threads;
  for (auto& inner : make_thread_group(world_size)) {
    threads.emplace_back(
        [&fn, mine = std::move(inner)]() mutable { fn(*staged(std::move(mine), Device{})); });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(StagedCommunicator, CarriesEveryCollective) {
  run_staged(2, [](Communicator& communicator) {
    const int rank = communicator.rank();
    const Device device = test_device(rank);
    const Tensor mine = Tensor::full({1}, 10 + rank, DType::float64, device);
    const Tensor all = Tensor::zeros({2}, DType::float64, device);
    communicator.all_gather(mine, all).wait();
    EXPECT_THAT(all.to_vector<double>(), ElementsAre(10, 11));
    communicator.reduce_scatter(all, mine).wait();
    EXPECT_THAT(mine.to_vector<double>(), Each(rank == 0 ? 20 : 22));
    EXPECT_THAT(all.to_vector<double>(), ElementsAre(10, 11));
    communicator.broadcast(mine, 1).wait();
    EXPECT_THAT(mine.to_vector<double>(), Each(22));
    communicator.all_reduce(mine, {.launch = Launch::async}).wait();
    EXPECT_THAT(mine.to_vector<double>(), Each(44));
    communicator.barrier().wait();
  });
}

TEST(StagedCommunicator, HandsTimeLimitPlanAndNameOn) {
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
