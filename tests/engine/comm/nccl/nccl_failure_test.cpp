// Failures that NCCL cannot name by itself: a rank that does not come, two ranks on one GPU, a call
// that hangs.
#include "tests/engine/comm/comm_test_data.h"
#include "tests/engine/comm/nccl/nccl_ranks.h"

namespace lockstep::comm {
namespace {

Tensor buffer_of(const Communicator& group, std::size_t length = 8) {
  return Tensor::zeros({length}, DType::float32, gpu_of(group));
}

class NcclFailure : public ::testing::Test {
 protected:
  void SetUp() override { LOCKSTEP_NEEDS_GPUS(3); }
  void TearDown() override { forget_device_errors(); }
};

TEST_F(NcclFailure, TwoRanksOnOneGpuAreRefusedByAllWithTheChoices) {
  NcclRanks ranks;
  ranks.adjust = [](NcclGroupOptions& options) {
    options.device.index = options.rank == 2 ? 0 : options.rank;
  };
  expect_errors(ranks.errors_of(3, [](Communicator&) {}), ErrorCode::Device,
                "[nccl] ranks 0 and 2 are both on the GPU GPU-");
}

TEST_F(NcclFailure, ARankThatDoesNotComeIsNamed) {
  NcclRanks ranks;
  ranks.timeout_seconds = 1;
  ranks.adjust = [](NcclGroupOptions& options) { options.world_size = 3; };
  expect_errors(ranks.errors_of(2, [](Communicator&) {}), ErrorCode::Timeout,
                "[nccl 0] 2 of 3 ranks came within 1 s, missing: rank 2");
}

// The ranks that are blocked say so at their time limit; the one that did not make the call hears
// of it when it needs the others.
TEST_F(NcclFailure, ACallThatOneRankDoesNotMakeEndsOnAllRanksWhichSayWhatTheyCalled) {
  NcclRanks ranks;
  ranks.timeout_seconds = 2;
  std::atomic<int> num_ended{0};
  const auto errors = ranks.errors_of(3, [&](Communicator& group) {
    group.barrier();
    const Tensor buffer = buffer_of(group);
    try {
      if (group.rank() == 1) {
        while (num_ended.load() < 2) std::this_thread::yield();
      } else {
        group.all_reduce(buffer);
        buffer.to_vector<float>();
      }
    } catch (const Error&) {
      ++num_ended;
      throw;
    }
    group.barrier();
  });
  expect_errors({errors[0]}, ErrorCode::Timeout,
                "[all_reduce] all_reduce #1 of 8 float32 (sum) of rank 0 was not done within 2 s");
  expect_errors({errors[1]}, ErrorCode::Timeout,
                "[barrier] barrier #1 of rank 1 was not done within 2 s");
  expect_errors({errors[2]}, ErrorCode::Timeout,
                "[all_reduce] all_reduce #1 of 8 float32 (sum) of rank 2 was not done within 2 s");
}

TEST_F(NcclFailure, AnAbortBreaksTheGroupOfItsRankAndTheOthersEndAtTheirTimeLimit) {
  NcclRanks ranks;
  ranks.timeout_seconds = 2;
  const auto errors = ranks.errors_of(3, [](Communicator& group) {
    if (group.rank() == 1) group.abort("its data is gone");
    group.barrier();
  });
  expect_errors({errors[1]}, ErrorCode::Comm, "[abort] rank 1 aborted the group: its data is gone");
  expect_errors({errors[0], errors[2]}, ErrorCode::Timeout, "barrier #0 of rank");
}

}  // namespace
}  // namespace lockstep::comm
