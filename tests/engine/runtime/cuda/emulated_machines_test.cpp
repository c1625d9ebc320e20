// Machines that are not there: without a GPU, with an old driver, without peer access.
#include "tests/engine/runtime/cuda/cuda_test.h"

namespace lockstep::runtime {
namespace {

TEST(Machines, WithoutAGpuSayWhatMayHideIt) {
  EXPECT_IN_NEW_PROCESS({
    setenv("LOCKSTEP_EMULATED_GPUS", "0", 1);
    EXPECT_TRUE(physical_gpus().empty());
    EXPECT_EQ(num_devices(DeviceType::cuda), 0);
    EXPECT_TRUE(logical_gpus().empty());
    EXPECT_THAT(no_gpu_reason(), ::testing::HasSubstr("CUDA_VISIBLE_DEVICES"));
    expect_error(ErrorCode::Device, "cuda:0 does not exist: CUDA finds no GPU",
                 [] { logical_device(kFirst); });
    expect_error(ErrorCode::Device, "'cuda:0*2' needs a GPU: CUDA finds no GPU",
                 [] { set_virtual_devices("cuda:0*2"); });
  });
}

TEST(Machines, WithAnOldDriverSayWhatTheyNeed) {
  EXPECT_IN_NEW_PROCESS({
    setenv("LOCKSTEP_EMULATED_DRIVER", "11080", 1);
    const std::string needed =
        std::to_string(CUDART_VERSION / 1000) + "." + std::to_string(CUDART_VERSION % 1000 / 10);
    EXPECT_TRUE(physical_gpus().empty());
    EXPECT_THAT(no_gpu_reason(), ::testing::HasSubstr("the NVIDIA driver serves CUDA 11.8 and this "
                                                      "build needs " +
                                                      needed));
  });
  EXPECT_IN_NEW_PROCESS({
    setenv("LOCKSTEP_EMULATED_DRIVER", "0", 1);
    EXPECT_THAT(no_gpu_reason(), ::testing::HasSubstr("no NVIDIA driver is installed"));
  });
}

TEST(Machines, WithoutPeerAccessCopyAllTheSame) {
  EXPECT_IN_NEW_PROCESS({
    setenv("LOCKSTEP_EMULATED_GPUS", "2", 1);
    setenv("LOCKSTEP_EMULATED_PEER_ACCESS", "0", 1);
    EXPECT_FALSE(has_peer_access(0, 1));
    EXPECT_TRUE(has_peer_access(1, 1));
    const Device gpus[] = {{DeviceType::cuda, 0}, {DeviceType::cuda, 1}};
    for (int round = 0; round < 5; ++round) {
      const Tensor x = Tensor::full({10'000}, round, DType::float32, gpus[0]);
      const Tensor y = Tensor::full({10'000}, -1, DType::float32, gpus[1]);
      y.copy_from(x);
      x.fill(9);
      x.copy_from(y);
      y.fill(8);
      EXPECT_EQ(values_of(x), std::vector<float>(10'000, float(round)));
    }
  });
}

}  // namespace
}  // namespace lockstep::runtime
