// Failures that only an emulated NCCL can be asked for.
#include <cstdlib>

#include "tests/emulated_gpu/nccl/clique.h"
#include "tests/engine/comm/comm_test_data.h"
#include "tests/engine/comm/nccl/nccl_ranks.h"

namespace lockstep::comm {
namespace {

// Read when the first of this program's tests asks for GPUs.
const int kHasFourGpus = setenv("LOCKSTEP_EMULATED_GPUS", "4", 1);

TEST(NcclErrors, OneRanksErrorEndsTheCallOnAllRanksInNcclsWords) {
  ASSERT_EQ(kHasFourGpus, 0);
  const auto errors = NcclRanks().errors_of(3, [](Communicator& group) {
    group.barrier();
    const Tensor buffer =
        Tensor::zeros({8}, DType::float32, Device{DeviceType::cuda, group.rank()});
    if (group.rank() == 1) {
      emulated_nccl::set_async_error(0, ncclRemoteError);
      while (true) group.barrier();
    }
    group.all_reduce(buffer);
    buffer.to_vector<float>();
  });
  emulated_nccl::set_async_error(0, ncclSuccess);
  for (const auto& error : errors) {
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), ErrorCode::Comm);
    EXPECT_THAT(error->what(),
                ::testing::HasSubstr("failed in NCCL: remote process exited or there was a network "
                                     "error"));
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

}  // namespace
}  // namespace lockstep::comm
