// Failures on demand: only an emulated NCCL has them.
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
  ranks.timeout_seconds = 2;
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
  expect_errors({errors[0]}, ErrorCode::Comm,
                "failed in NCCL: remote process exited or there was a network error");
  expect_errors({errors[1], errors[2]}, ErrorCode::Timeout, "was not done within 2 s");
  forget_device_errors();
}

TEST(NcclErrors, ACallThatNcclRefusesIsNamedByItsRank) {
  NcclRanks ranks;
  ranks.timeout_seconds = 2;
  const auto errors = ranks.errors_of(2, [](Communicator& group) {
    group.barrier();
    const Tensor buffer = Tensor::full({5}, 1, DType::float32, gpu_of(group));
    if (group.rank() == 1) emulated_nccl::refuse_call(1, 0);
    group.all_reduce(buffer);
    group.barrier();
  });
  expect_errors({errors[0]}, ErrorCode::Timeout, "was not done within 2 s");
  expect_errors({errors[1]}, ErrorCode::Comm, "[ncclAllReduce] failed: ");
  forget_device_errors();
}

}  // namespace
}  // namespace lockstep::comm
