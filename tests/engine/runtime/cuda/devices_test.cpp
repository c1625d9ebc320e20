// Which logical devices there are, and what stands behind them.
#include "engine/runtime/logical_device.h"
#include "tests/engine/runtime/cuda/cuda_test.h"

namespace lockstep::runtime {
namespace {

class CudaDevices : public CudaTest {};

TEST_F(CudaDevices, StandForTheGpusThatWereDeclared) {
  const int other_gpu = physical_gpus().size() > 1 ? 1 : 0;
  EXPECT_EQ(logical_gpus(), (std::vector<int>{0, 0, 0, other_gpu}));
  EXPECT_EQ(num_devices(DeviceType::cuda), kNumDevices);
  EXPECT_TRUE(has_virtual_devices());
  EXPECT_EQ(logical_device(kSibling).gpu(), 0);
  EXPECT_EQ(logical_device(kOther).gpu(), other_gpu);
  EXPECT_EQ(logical_device(kCpu).gpu(), kNoGpu);
}

TEST_F(CudaDevices, ANameBeyondTheLastSaysWhichExist) {
  expect_error(ErrorCode::Device,
               "cuda:9 does not exist; cuda:0 to cuda:3 do (several logical devices on one GPU: "
               "LOCKSTEP_VIRTUAL_DEVICES=cuda:0*10)",
               [] {
                 logical_device({DeviceType::cuda, 9});
               });
  expect_error(ErrorCode::Device, "cuda:-1 does not exist", [] {
    logical_device({DeviceType::cuda, -1});
  });
}

TEST_F(CudaDevices, CannotBeDeclaredAnewInUse) {
  logical_device(kFirst);
  EXPECT_TRUE(has_cuda_devices_in_use());
  set_virtual_devices(physical_gpus().size() > 1 ? "cuda:0*3,cuda:1" : "cuda:0*4");  // as they are
  expect_error(ErrorCode::State, "'cuda:0*2' comes too late",
               [] { set_virtual_devices("cuda:0*2"); });
  EXPECT_EQ(num_devices(DeviceType::cuda), kNumDevices);
}

TEST_F(CudaDevices, MayBeDeclaredAnewBeforeUse) {
  EXPECT_IN_NEW_PROCESS({
    set_virtual_devices("cuda:0*2");
    EXPECT_EQ(num_devices(DeviceType::cuda), 2);
    set_virtual_devices("cuda:0*5");
    EXPECT_EQ(num_devices(DeviceType::cuda), 5);
    expect_error(ErrorCode::Usage, "'cuda'", [] { set_virtual_devices("cuda"); });
    expect_error(ErrorCode::Usage, "''", [] { set_virtual_devices(""); });
    EXPECT_EQ(num_devices(DeviceType::cuda), 5);
  });
}

// In the process of a death test SetUp declares devices, so these tests need none of it.
TEST(CudaDevicesOfTheEnvironment, AreThoseOfLockstepVirtualDevices) {
  EXPECT_IN_NEW_PROCESS({
    setenv("LOCKSTEP_VIRTUAL_DEVICES", "cuda:0*7", 1);
    const bool is_there = !physical_gpus().empty();
    EXPECT_EQ(num_devices(DeviceType::cuda), is_there ? 7 : 0);
    EXPECT_EQ(has_virtual_devices(), is_there);
    if (is_there) {
      expect_error(ErrorCode::Device, "cuda:0 to cuda:6 do", [] {
        logical_device({DeviceType::cuda, 7});
      });
      set_virtual_devices("cuda:0*3");  // the program's own words count more
      EXPECT_EQ(num_devices(DeviceType::cuda), 3);
    }
  });
}

TEST(CudaDevicesOfTheEnvironment, AreAnErrorWhereTheWordsMeanNothing) {
  EXPECT_IN_NEW_PROCESS({
    setenv("LOCKSTEP_VIRTUAL_DEVICES", "two", 1);
    if (!physical_gpus().empty()) {
      for (int round = 0; round < 2; ++round) {
        expect_error(ErrorCode::Usage, "'two' in 'two' is not understood",
                     [] { logical_device(kFirst); });
      }
    }
  });
}

}  // namespace
}  // namespace lockstep::runtime
