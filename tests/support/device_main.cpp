// main() of the test programs that run on the CPU and, with LOCKSTEP_TEST_DEVICE=cuda, on a GPU.
//
// On a GPU there are 64 logical devices: all on GPU 0, or with LOCKSTEP_TEST_GPUS=N in turn on the
// first N. On a machine with fewer GPUs nothing runs: it says so and exits with 77.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cstdlib>
#include <string>

#include "engine/runtime/logical_device.h"
#include "engine/runtime/physical_gpus.h"
#include "engine/tensor/tensor.h"
#include "tests/support/devices.h"

namespace {

// CTest goes by the word SKIPPED; this is for people and scripts.
constexpr int kSkipped = 77;

std::string logical_devices(int num_gpus) {
  std::string text = "cuda:0";
  for (int i = 1; i < lockstep::runtime::kMaxCudaDevices; ++i) {
    text += fmt::format(",cuda:{}", i % num_gpus);
  }
  return text;
}

// Why this machine cannot run the tests; empty if it can.
std::string choose_devices() {
  using namespace lockstep;
  if (lockstep::testing::test_device_type() == DeviceType::cpu) return {};
  setenv("XDG_CACHE_HOME", "/dev/null", 1);  // no test depends on what an earlier one has timed
  const char* wanted = std::getenv("LOCKSTEP_TEST_GPUS");
  const int num_gpus = wanted != nullptr ? std::atoi(wanted) : 1;
  const int num_present = static_cast<int>(runtime::physical_gpus().size());
  if (num_present == 0) return runtime::no_gpu_reason();
  if (num_present < num_gpus) return fmt::format("needs {} GPUs, found {}", num_gpus, num_present);
  runtime::set_virtual_devices(logical_devices(num_gpus));
  set_default_device(lockstep::testing::test_device());
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  ::testing::InitGoogleMock(&argc, argv);
  const std::string problem = ::testing::GTEST_FLAG(list_tests) ? std::string() : choose_devices();
  if (!problem.empty()) {
    fmt::print("[  SKIPPED ] every test: {}\n", problem);
    return kSkipped;
  }
  return RUN_ALL_TESTS();
}
