// Failures on demand, and counts of calls: only an emulated NCCL has them.
#include <cstdlib>

#include "tests/emulated_gpu/nccl/clique.h"
#include "tests/engine/comm/comm_test_data.h"
#include "tests/engine/comm/nccl/nccl_ranks.h"

namespace lockstep::comm {
namespace {

// Read when the first of this program's tests asks for GPUs.
const int kHasFourGpus = setenv("LOCKSTEP_EMULATED_GPUS", "4", 1);

TEST(NcclErrors, AnErrorOfNcclEndsTheCallInItsWordsAndTheOtherRanksEndAtTheirTimeLimit) {
  ASSERT_EQ(kHasFourGpus, 0);
  NcclRanks ranks;
  ranks.timeout_seconds = 0.5;
  const auto errors = ranks.errors_of(3, [](Communicator& group) {
    group.barrier();
    const Tensor buffer = Tensor::zeros({8}, DType::float32, gpu_of(group));
    if (group.rank() == 1) {
      emulated_nccl::set_async_error(0, ncclRemoteError);
      while (true) group.barrier();
    }
    group.all_reduce(buffer);
    buffer.to_vector<float>();
  });
  emulated_nccl::set_async_error(0, ncclSuccess);
  for (const auto& error : errors) ASSERT_TRUE(error);
  EXPECT_EQ(errors[0]->code(), ErrorCode::Comm);
  EXPECT_THAT(errors[0]->what(),
              ::testing::HasSubstr("failed in NCCL: remote process exited or there was a network "
                                   "error"));
  for (const std::size_t rank : {1u, 2u}) {
    EXPECT_THAT(errors[rank]->what(), ::testing::HasSubstr("was not done within 0.5 s"));
  }
  for (int gpu = 0; gpu < 3; ++gpu) {
    EXPECT_ANY_THROW({
      for (int i = 0; i < 2; ++i) {
        Tensor::zeros({1}, DType::float32, Device{DeviceType::cuda, gpu}).item();
      }
      throw std::runtime_error("was thrown before");
    });
  }
}

std::vector<Tensor> five_tensors(const Communicator& group) {
  std::vector<Tensor> tensors;
  for (std::size_t length = 1; length <= 5; ++length) {
    tensors.push_back(Tensor::full({length}, 1, DType::float32, gpu_of(group)));
  }
  return tensors;
}

TEST(NcclGroups, SeveralTensorsAreOneGroupAndASingleOneIsNone) {
  const emulated_nccl::Counters before = emulated_nccl::counters();
  NcclRanks().run(2, [](Communicator& group) {
    group.broadcast(five_tensors(group), 0).wait();
    group.all_reduce(std::vector<Tensor>{five_tensors(group)[0]}).wait();
  });
  const emulated_nccl::Counters after = emulated_nccl::counters();
  EXPECT_EQ(after.num_groups - before.num_groups, 2u);  // one of each rank
  EXPECT_EQ(after.num_calls - before.num_calls, 12u);
}

TEST(NcclGroups, ARefusedCallEndsItsGroupAndIsNamedByItsRank) {
  NcclRanks ranks;
  ranks.timeout_seconds = 0.5;
  const auto errors = ranks.errors_of(2, [](Communicator& group) {
    group.barrier();
    const std::vector<Tensor> tensors = five_tensors(group);
    if (group.rank() == 1) emulated_nccl::refuse_call(1, 2);
    try {
      group.all_reduce(tensors);
      group.barrier();
    } catch (const Error&) {
      // The thread's group is over: another one moves data again.
      ncclResult_t (*const in_no_group)() = ncclGroupEnd;
      EXPECT_EQ(in_no_group(), ncclInvalidUsage);
      throw;
    }
  });
  ASSERT_TRUE(errors[0]);
  EXPECT_THAT(errors[0]->what(), ::testing::HasSubstr("was not done within 0.5 s"));
  ASSERT_TRUE(errors[1]);
  EXPECT_EQ(errors[1]->code(), ErrorCode::Comm);
  EXPECT_THAT(errors[1]->what(), ::testing::HasSubstr("[ncclAllReduce] failed: "));
  for (int gpu = 0; gpu < 2; ++gpu) {
    try {
      Tensor::zeros({1}, DType::float32, Device{DeviceType::cuda, gpu}).item();
    } catch (const Error&) {
      // The error was left with the device.
    }
  }
}

// Tests the imitation itself: code that does not end its groups, or does not wait for them, is
// found.
TEST(NcclGroups, WhatIsInAGroupHappensAfterItsEndAndNotBefore) {
  ncclUniqueId id;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t comm = nullptr;
  ncclResult_t state = ncclSuccess;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  ASSERT_EQ(ncclCommInitRankConfig(&comm, 1, id, 0, &config), ncclInProgress);
  const Tensor from = Tensor::full({4}, 7, DType::float32, Device{DeviceType::cuda, 0});
  const Tensor to = Tensor::zeros({4}, DType::float32, Device{DeviceType::cuda, 0});
  from.to_vector<float>();  // both are there
  to.to_vector<float>();
  ASSERT_EQ(ncclGroupStart(), ncclSuccess);
  EXPECT_EQ(ncclAllGather(from.raw(), to.raw(), 4, ncclFloat32, comm, nullptr), ncclSuccess);
  const auto values = [&] {
    cudaDeviceSynchronize();
    return to.to_vector<float>();
  };
  EXPECT_THAT(values(), ::testing::Each(0));
  EXPECT_EQ(ncclGroupEnd(), ncclInProgress);
  EXPECT_THAT(values(), ::testing::Each(0));
  EXPECT_EQ(ncclCommGetAsyncError(comm, &state), ncclSuccess);
  EXPECT_THAT(values(), ::testing::Each(7));
  ncclCommDestroy(comm);
}

}  // namespace
}  // namespace lockstep::comm
