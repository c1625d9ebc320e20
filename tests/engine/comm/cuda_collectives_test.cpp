// Promises of collectives between threads that only hold on CUDA devices.
#include <gmock/gmock.h>

#include <latch>

#include "tests/engine/comm/comm_test_data.h"
#include "tests/support/expect_error.h"
#include "tests/support/run_ranks.h"

namespace lockstep::comm {
namespace {

using ::lockstep::testing::errors_of_ranks;
using ::lockstep::testing::run_ranks;
using ::lockstep::testing::test_device;
using ::lockstep::testing::test_device_type;

class CudaCollectives : public ::testing::Test {
 protected:
  void SetUp() override {
    if (test_device_type() != DeviceType::cuda) GTEST_SKIP() << "a test of CUDA devices";
  }
};

CollectiveOptions async_sum() {
  CollectiveOptions options;
  options.launch = Launch::async;
  return options;
}

TEST_F(CudaCollectives, TheComputeStreamGoesOnWhileAnAsynchronousOneWaitsForItsPeers) {
  std::latch has_computed(1);
  run_ranks(2, [&](Communicator& communicator) {
    const Device device = test_device(communicator.rank());
    const Tensor gradient = Tensor::full({1000}, 1, DType::float32, device);
    if (communicator.rank() == 1) has_computed.wait();
    const Work work = communicator.all_reduce(gradient, async_sum());
    if (communicator.rank() == 0) {
      EXPECT_EQ(Tensor::full({1}, 7, DType::float32, device).item(), 7);
      EXPECT_FALSE(work.is_done());
      has_computed.count_down();
    }
    work.wait();
    EXPECT_THAT(gradient.to_vector<float>(), ::testing::Each(2.0f));
    EXPECT_TRUE(work.is_done());
  });
}

TEST_F(CudaCollectives, SeeWhatTheComputeStreamHeldAtTheCallAndNothingLater) {
  run_ranks(4, [](Communicator& communicator) {
    const Device device = test_device(communicator.rank());
    const Tensor buffer = Tensor::empty({100'000}, DType::float64, device);
    for (int round = 0; round < 20; ++round) {
      buffer.fill(round + communicator.rank());
      const Launch launch = round % 3 == 0 ? Launch::blocking : Launch::async;
      CollectiveOptions options;
      options.launch = launch;
      options.plan = kPlans[static_cast<std::size_t>(round) % kPlans.size()];
      communicator.all_reduce(buffer, options).wait();
      const Tensor copy = buffer.clone();  // behind the collective
      buffer.fill(-1);                     // and nobody may still read the buffer
      EXPECT_THAT(copy.to_vector<double>(), ::testing::Each(4.0 * round + 6)) << "round " << round;
    }
  });
}

TEST_F(CudaCollectives, ARankWithItsTensorOnTheCpuIsNamed) {
  const auto errors = errors_of_ranks(2, [](Communicator& communicator) {
    const Device device = communicator.rank() == 0 ? test_device(0) : Device{};
    communicator.all_reduce(Tensor::zeros({8}, DType::float32, device));
  });
  expect_errors(errors, ErrorCode::Comm,
                "rank 1 called all_reduce #0 of 8 float32 (sum) on cpu while rank 0 called "
                "all_reduce #0 of 8 float32 (sum) on cuda");
}

TEST_F(CudaCollectives, AMessageFromTheCpuToAGpuIsAnError) {
  const auto errors = errors_of_ranks(2, [](Communicator& communicator) {
    if (communicator.rank() == 0) {
      communicator.send(Tensor::zeros({2}, DType::float32, Device{}), 1);
      communicator.barrier();
    } else {
      communicator.recv(Tensor::zeros({2}, DType::float32, test_device(1)), 0);
    }
  });
  expect_errors(errors, ErrorCode::Comm,
                "rank 1 called recv #0 of 2 float32 on cuda while rank 0 called send #0 of 2 "
                "float32 on cpu");
}

TEST_F(CudaCollectives, CpuAndCudaCallsMayTakeTurns) {
  run_ranks(3, [](Communicator& communicator) {
    for (int round = 0; round < 10; ++round) {
      const Device device = round % 2 == 0 ? test_device(communicator.rank()) : Device{};
      const Tensor value = Tensor::full({3}, 1, DType::int32, device);
      communicator.all_reduce(value, async_sum()).wait();
      EXPECT_THAT(value.to_vector<int>(), ::testing::Each(3));
    }
  });
}

}  // namespace
}  // namespace lockstep::comm
