#include "engine/parallel/data_parallel/data_parallel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <mutex>
#include <optional>

#include "engine/autograd/ops/ops.h"
#include "engine/autograd/variable.h"
#include "engine/nn/layers.h"
#include "engine/nn/state_dict.h"
#include "tests/engine/parallel/function_module.h"
#include "tests/support/devices.h"
#include "tests/support/expect_close.h"
#include "tests/support/expect_error.h"

namespace lockstep::testing {
namespace {

using parallel::data_parallel;
using parallel::DataParallel;
using parallel::DataParallelOptions;
using ::testing::HasSubstr;

DataParallelOptions on_devices(const std::vector<Device>& devices) {
  DataParallelOptions options;
  options.devices = devices;
  return options;
}

TEST(DataParallel, OutputAndGradientsAreThoseOfOneDevice) {
  // One layer used twice, so that its parameters get the sum of both uses.
  const auto layer = make_linear(5, 5, 1);
  const auto twice = make_function_module({layer}, [](nn::Module& self, const Variable& x) {
    return call_child(self, 0, tanh(call_child(self, 0, x)));
  });
  Variable x(random_tensor({7, 5}, 2), RequiresGrad::yes);
  const Variable expected = (*twice)(x);
  sum(expected).backward();
  const Tensor grads[] = {x.grad(), layer->weight().grad(), layer->bias().grad()};
  x.clear_grad();
  layer->zero_grad();
  DataParallel wrapper(twice, on_devices(cpu_devices(3)));
  const Variable y = wrapper(x);
  sum(y).backward();
  EXPECT_EQ(y.device(), test_device(0));
  expect_close(y.value(), expected.value(), kFloat64);
  expect_close(x.grad(), grads[0], kFloat64);
  expect_close(layer->weight().grad(), grads[1], kFloat64);
  expect_close(layer->bias().grad(), grads[2], kFloat64);
}

TEST(DataParallel, RowsGoToTheGivenDevicesInOrder) {
  struct Case {
    std::vector<int> devices;
    std::size_t rows;
    std::map<int, std::size_t> expected;
  };
  for (const auto& [devices, rows, expected] :
       {Case{{0, 3}, 30, {{0, 15}, {3, 15}}}, Case{{2, 0}, 3, {{2, 2}, {0, 1}}},
        Case{{0, 1, 2, 3, 4, 5, 6, 7}, 10, {{0, 2}, {1, 2}, {2, 2}, {3, 2}, {4, 2}}}}) {
    std::mutex mutex;
    std::map<int, std::size_t> seen;
    const auto module =
        make_function_module({make_linear(5, 2, 1)}, [&](nn::Module& self, const Variable& x) {
          const std::lock_guard lock(mutex);
          seen[x.device().index] += x.shape()[0];
          return call_child(self, 0, x);
        });
    module->to(test_device(devices[0]));
    DataParallel wrapper(module, on_devices(devices_of(test_device_type(), devices)));
    const Variable y = wrapper(Variable(random_tensor({rows, 5}, 1)));
    EXPECT_EQ(seen, expected);
    EXPECT_EQ(y.device(), test_device(devices[0]));
  }
}

TEST(DataParallel, DefaultsAreAllDevicesAndTheFirst) {
  DataParallel wrapper(make_linear(5, 2, 1));
  const bool on_cpu = test_device_type() == DeviceType::cpu;
  EXPECT_EQ(wrapper.options().devices,
            cpu_devices(on_cpu ? runtime::num_cores()
                               : static_cast<std::size_t>(runtime::num_devices(DeviceType::cuda))));
  EXPECT_EQ(*wrapper.options().output_device, test_device());
  EXPECT_EQ(wrapper.options().dim, 0u);
}

TEST(DataParallel, TheFunctionalFormEqualsTheWrapper) {
  const auto module = make_linear(5, 2, 1);
  const Variable x(random_tensor({7, 5}, 2));
  for (const std::size_t count : {1, 2, 5}) {
    DataParallelOptions options = on_devices(cpu_devices(count));
    options.output_device = test_device(1);
    const auto wrapper = std::make_shared<DataParallel>(module, options);
    const Variable y = data_parallel(module, x, options);
    EXPECT_EQ(y.device(), test_device(1));
    expect_close(y.value(), (*wrapper)(x).value(), kExact);
    // A wrapped module may be given too.
    expect_close(data_parallel(wrapper, x, options).value(), y.value(), kExact);
  }
}

TEST(DataParallel, MayMoveBeforeOrAfterWrapping) {
  const Device second = test_device(1);
  const Variable x(random_tensor({6, 5}, 2));
  const std::vector<Device> devices = devices_of(test_device_type(), {1, 0, 2});

  const auto moved_first = make_linear(5, 2, 1);
  moved_first->to(second);
  DataParallel wrapped_later(moved_first, on_devices(devices));
  const auto moved_later = make_linear(5, 2, 1);
  DataParallel wrapped_first(moved_later, on_devices(devices));
  wrapped_first.to(second);

  const Variable y = wrapped_first(x);
  EXPECT_EQ(y.device(), test_device(1));
  expect_close(y.value(), wrapped_later(x).value(), kExact);
  sum(y).backward();
  EXPECT_EQ(moved_later->bias().grad().device(), test_device(1));
}

TEST(DataParallel, ParametersElsewhereAreRefusedInPyTorchsWords) {
  const auto module = make_linear(5, 2, 1);
  module->to(test_device(1));
  for (const std::size_t count : {1, 2}) {
    DataParallel wrapper(module, on_devices(cpu_devices(count)));
    const auto call = [&] { wrapper(Variable(random_tensor({4, 5}, 1))); };
    expect_error(ErrorCode::Device,
                 "module must have its parameters and buffers on device cpu:0 (device_ids[0]) but "
                 "found one of them on device cpu:1",
                 call);
    expect_error(ErrorCode::Device, "all tensors must be on devices[0]", call);
  }
}

TEST(DataParallel, RefusesModulesAndDevicesItCannotWrap) {
  const auto refuses = [](ErrorCode code, const std::string& words,
                          const std::vector<Device>& devices, std::optional<Device> output = {}) {
    DataParallelOptions options = on_devices(devices);
    options.output_device = output;
    expect_error(code, words, [&] { DataParallel wrapper(make_linear(5, 2, 1), options); });
  };
  refuses(ErrorCode::Device, "twice", {test_device(0), test_device(1), test_device(0)});
  refuses(ErrorCode::Device, "cpu:64 does not exist", {test_device(), test_device(64)});
  refuses(ErrorCode::Device, "cpu:99 does not exist", cpu_devices(2), test_device(99));
  if (test_device_type() == DeviceType::cpu) {
    refuses(ErrorCode::Device, "of one type, found cpu:0 and cuda:0", {{}, {DeviceType::cuda, 0}});
  }
  const auto wrapper = std::make_shared<DataParallel>(make_linear(5, 2, 1));
  expect_error(ErrorCode::Usage, "wrapped in DataParallel already",
               [&] { DataParallel again(wrapper); });
  expect_error(ErrorCode::Usage, "no module", [] { DataParallel none(nullptr); });
}

TEST(DataParallel, PrintsAsInPyTorch) {
  const auto module = make_linear(10, 1, 1);
  const DataParallel wrapper(module);
  EXPECT_EQ(wrapper.to_string(),
            "DataParallel(\n"
            "  (module): Linear(in_features=10, out_features=1, bias=True)\n"
            ")");
  EXPECT_EQ(nn::state_dict(wrapper)[0].first, "module.weight");
  EXPECT_TRUE(wrapper.parameters()[0].is_same(module->weight()));
}

// Restores what the test changes, whatever happens in it.
class ThreadsOf {
 public:
  ThreadsOf(Device device, std::size_t count) : device_(device) {
    runtime::logical_device(device).set_num_threads(count);
  }
  ~ThreadsOf() { runtime::logical_device(device_).set_num_threads(1); }

 private:
  Device device_;
};

TEST(DataParallel, WarnsOfADeviceWithFarFewerThreads) {
  LOCKSTEP_CPU_ONLY("a device of the CPU has threads");
  const auto warnings = [](const std::vector<Device>& devices) {
    ::testing::internal::CaptureStderr();
    DataParallel wrapper(make_linear(5, 2, 1), on_devices(devices));
    return ::testing::internal::GetCapturedStderr();
  };
  const ThreadsOf four(test_device(40), 4);
  const ThreadsOf three(test_device(41), 3);
  const ThreadsOf two(test_device(42), 2);
  const auto devices = [](const std::vector<int>& ids) {
    return devices_of(test_device_type(), ids);
  };
  EXPECT_EQ(warnings(devices({40, 41})), "") << "exactly 75 %";
  EXPECT_THAT(warnings(devices({40, 42})), HasSubstr("imbalance"));
  EXPECT_THAT(warnings(devices({41, 40, 42})), HasSubstr("cpu:42")) << "which one to leave out";
  EXPECT_EQ(warnings(devices({41})), "");
}

}  // namespace
}  // namespace lockstep::testing
