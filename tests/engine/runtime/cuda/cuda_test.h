// Shared by the tests of the CUDA runtime: logical devices on one GPU and, if there is a second
// one, on that; and a gate that holds up a stream.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <future>
#include <memory>
#include <vector>

#include "engine/runtime/cuda/check.h"
#include "engine/runtime/cuda/cuda_stream.h"
#include "engine/runtime/logical_device.h"
#include "engine/runtime/physical_gpus.h"
#include "engine/tensor/tensor.h"
#include "tests/support/expect_error.h"

namespace lockstep::runtime {

using lockstep::testing::expect_error;

inline constexpr Device kCpu{DeviceType::cpu, 0};
// cuda:0 to cuda:2 share GPU 0; cuda:3 is GPU 1 where that exists, GPU 0 too elsewhere.
inline constexpr Device kFirst{DeviceType::cuda, 0};
inline constexpr Device kSibling{DeviceType::cuda, 1};
inline constexpr Device kOther{DeviceType::cuda, 3};
inline constexpr int kNumDevices = 4;

// Skips where there is no GPU, and says why.
class CudaTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (physical_gpus().empty()) GTEST_SKIP() << no_gpu_reason();
    set_virtual_devices(physical_gpus().size() > 1 ? "cuda:0*3,cuda:1" : "cuda:0*4");
  }
};

inline Stream& compute(Device device = kFirst) {
  return logical_device(device).compute_stream();
}
inline Stream& comm(Device device = kFirst) {
  return logical_device(device).comm_stream();
}

// A stream that comes to a gate stops there until the gate is opened. Memory, graphs, and kernels
// that have not run yet, may wait for the whole GPU and so for the gate: a test makes them before.
class Gate {
 public:
  Gate() {
    for (int i = 0; i < kNumDevices; ++i) logical_device({DeviceType::cuda, i});
  }
  ~Gate() { open(); }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;
  void block(Stream& stream) {
    // The stream may come to it when the gate is gone.
    const auto wait = [](void* opened) {
      static_cast<std::shared_future<void>*>(opened)->wait();
      delete static_cast<std::shared_future<void>*>(opened);
    };
    const cuda::CudaStream& on = cuda::cuda_stream(stream);
    const cuda::CurrentGpu current(on.gpu());
    CUDA_CHECK(cudaLaunchHostFunc(on.handle(), wait, new std::shared_future<void>(opened_)));
  }
  void open() {
    if (!is_open_) open_.set_value();
    is_open_ = true;
  }

 private:
  std::promise<void> open_;
  std::shared_future<void> opened_ = open_.get_future().share();
  bool is_open_ = false;
};

inline std::vector<float> values_of(const Tensor& tensor) {
  return tensor.to_vector<float>();
}

}  // namespace lockstep::runtime

// Runs statements in a process of its own, which has used no GPU yet; its expectations count.
#define EXPECT_IN_NEW_PROCESS(...)                                                 \
  do {                                                                             \
    GTEST_FLAG_SET(death_test_style, "threadsafe");                                \
    const auto statements = [&] { __VA_ARGS__; };                                  \
    EXPECT_EXIT((statements(), std::_Exit(::testing::Test::HasFailure() ? 1 : 0)), \
                ::testing::ExitedWithCode(0), "");                                 \
  } while (false)
