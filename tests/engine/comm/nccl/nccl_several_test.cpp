// Lists of tensors, which NCCL gets as one group.
#include "tests/engine/comm/comm_test_data.h"
#include "tests/engine/comm/nccl/nccl_ranks.h"

namespace lockstep::comm {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

std::vector<Tensor> ones_of(const Communicator& group, const std::vector<std::size_t>& lengths) {
  std::vector<Tensor> tensors;
  for (const std::size_t length : lengths) {
    tensors.push_back(Tensor::full({length}, 1, DType::float32, gpu_of(group)));
  }
  return tensors;
}

// A call that failed left its error with the device, for whoever waits next: the next test is not
// to find it.
class NcclSeveral : public ::testing::Test {
 protected:
  void SetUp() override { LOCKSTEP_NEEDS_GPUS(2); }
  void TearDown() override {
    for (int gpu = 0; gpu < 2; ++gpu) {
      try {
        Tensor::zeros({1}, DType::float32, Device{DeviceType::cuda, gpu}).item();
      } catch (const Error&) {
      }
    }
  }
};

TEST_F(NcclSeveral, TensorsOfEveryTypeAndSizeBlockingAndNot) {
  for (const Launch launch : {Launch::blocking, Launch::async}) {
    NcclRanks().run(2, [&](Communicator& group) {
      std::vector<Tensor> sums;
      std::vector<Tensor> copies;
      for (std::size_t i = 0; i < 60; ++i) {
        const DType dtype = kReducibleTypes[i % kReducibleTypes.size()];
        sums.push_back(small_values(group.rank(), i % 7 * 50, dtype).to(gpu_of(group)));
        copies.push_back(sums.back().clone());
      }
      CollectiveOptions options;
      options.launch = launch;
      const Work summed = group.all_reduce(sums, options);
      const Work copied = group.broadcast(copies, 1, launch);
      summed.wait();
      copied.wait();
      for (std::size_t i = 0; i < sums.size(); ++i) {
        const std::vector<double> sum = sums[i].to(DType::float64).to_vector<double>();
        const std::vector<double> copy = copies[i].to(DType::float64).to_vector<double>();
        for (std::size_t k = 0; k < sum.size(); ++k) {
          ASSERT_EQ(sum[k], reduced_small_value(ReduceOp::sum, 2, k));
          ASSERT_EQ(copy[k], small_value(1, k));
        }
      }
    });
  }
}

TEST_F(NcclSeveral, NothingButEmptyTensorsIsNothingForNccl) {
  NcclRanks().run(2, [](Communicator& group) {
    group.all_reduce(ones_of(group, {0, 0})).wait();
    group.broadcast(std::vector<Tensor>{}, 0).wait();
    const std::vector<Tensor> one = ones_of(group, {3});
    group.all_reduce(one).wait();
    EXPECT_THAT(one[0].to_vector<float>(), Each(2));
  });
}

TEST_F(NcclSeveral, AListThatDiffersEndsWithWhatEachRankCalled) {
  NcclRanks ranks;
  ranks.timeout_seconds = 0.5;
  const auto errors = ranks.errors_of(2, [](Communicator& group) {
    const auto tensors =
        ones_of(group, {4, group.rank() == 1 ? std::size_t{7} : std::size_t{8}, 9});
    group.all_reduce(tensors);
    tensors[0].to_vector<float>();
  });
  std::string text;
  for (const auto& error : errors) {
    ASSERT_TRUE(error);
    text += error->what();
  }
  EXPECT_THAT(text, HasSubstr("all_reduce #0 of 4 float32 (sum) and 2 more (20 elements in all)"));
  EXPECT_THAT(text, HasSubstr("all_reduce #0 of 4 float32 (sum) and 2 more (21 elements in all)"));
}

TEST_F(NcclSeveral, ATensorOfAnotherDeviceIsRefusedBeforeAnyIsMoved) {
  const auto errors = NcclRanks().errors_of(2, [](Communicator& group) {
    const std::vector<Tensor> mixed{ones_of(group, {4})[0], Tensor::zeros({2})};
    EXPECT_THROW(group.all_reduce(mixed), Error);
    EXPECT_THAT(mixed[0].to_vector<float>(), Each(1));
    group.barrier();
  });
  for (const auto& error : errors) EXPECT_FALSE(error);
}

}  // namespace
}  // namespace lockstep::comm
