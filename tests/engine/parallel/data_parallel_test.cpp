#include "engine/parallel/data_parallel/data_parallel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <mutex>

#include "engine/autograd/ops/ops.h"
#include "engine/autograd/variable.h"
#include "engine/nn/layers.h"
#include "engine/nn/state_dict.h"
#include "engine/optim/optimizer.h"
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

// Says which rows ran where.
class RowCounter {
 public:
  std::shared_ptr<nn::Module> module() {
    return make_function_module({make_linear(5, 2, 1)},
                                [this](nn::Module& self, const Variable& x) {
                                  const std::lock_guard lock(mutex_);
                                  rows_[x.device().index] += x.shape()[0];
                                  return call_child(self, 0, x);
                                });
  }
  const std::map<int, std::size_t>& rows() const { return rows_; }

 private:
  std::mutex mutex_;
  std::map<int, std::size_t> rows_;
};

TEST(DataParallel, OutputIsThatOfTheModuleOnTheFirstDevice) {
  const auto module = make_linear(5, 2, 1);
  const Variable x(random_tensor({7, 5}, 2));
  DataParallel wrapper(module, on_devices(cpu_devices(3)));
  const Variable y = wrapper(x);
  EXPECT_EQ(y.device(), test_device(0));
  expect_close(y.value(), (*module)(x).value(), kFloat64);
}

TEST(DataParallel, GradientsAreSummedNotAveraged) {
  const auto module = make_linear(5, 2, 1);
  const Variable x(random_tensor({8, 5}, 2));
  sum((*module)(x)).backward();
  const Tensor expected = module->weight().grad();
  module->zero_grad();
  DataParallel wrapper(module, on_devices(cpu_devices(4)));
  sum(wrapper(x)).backward();
  expect_close(module->weight().grad(), expected, kFloat64);
  expect_close(module->bias().grad(), {8, 8}, kFloat64);
}

TEST(DataParallel, TheInputsGradientIsGatheredToo) {
  const auto module = make_linear(5, 2, 1);
  const Variable x(random_tensor({7, 5}, 2), RequiresGrad::yes);
  sum((*module)(x)).backward();
  const Tensor expected = x.grad().clone();
  Variable(x).clear_grad();
  DataParallel wrapper(module, on_devices(cpu_devices(3)));
  sum(wrapper(x)).backward();
  expect_close(x.grad(), expected, kFloat64);
}

TEST(DataParallel, UsesExactlyTheGivenDevices) {
  RowCounter counter;
  DataParallel wrapper(counter.module(), on_devices(devices_of(test_device_type(), {0, 3})));
  wrapper(Variable(random_tensor({30, 5}, 1)));
  EXPECT_EQ(counter.rows(), (std::map<int, std::size_t>{{0, 15}, {3, 15}}));
}

TEST(DataParallel, TheOrderOfTheDevicesCounts) {
  RowCounter counter;
  const auto module = counter.module();
  module->to(test_device(2));
  DataParallel wrapper(module, on_devices(devices_of(test_device_type(), {2, 0})));
  const Variable y = wrapper(Variable(random_tensor({3, 5}, 1)));
  EXPECT_EQ(counter.rows(), (std::map<int, std::size_t>{{2, 2}, {0, 1}}));
  EXPECT_EQ(y.device(), test_device(2));
}

TEST(DataParallel, OnlyAsManyReplicasAsChunksRun) {
  RowCounter counter;
  DataParallel wrapper(counter.module(), on_devices(cpu_devices(8)));
  wrapper(Variable(random_tensor({10, 5}, 1)));
  EXPECT_EQ(counter.rows(), (std::map<int, std::size_t>{{0, 2}, {1, 2}, {2, 2}, {3, 2}, {4, 2}}));
}

TEST(DataParallel, DefaultsAreAllVisibleDevicesAndTheFirstForTheOutput) {
  DataParallel wrapper(make_linear(5, 2, 1));
  const bool on_cpu = test_device_type() == DeviceType::cpu;
  EXPECT_EQ(wrapper.options().devices,
            cpu_devices(on_cpu ? runtime::num_cores()
                               : static_cast<std::size_t>(runtime::num_devices(DeviceType::cuda))));
  EXPECT_EQ(*wrapper.options().output_device, test_device());
  EXPECT_EQ(wrapper.options().dim, 0u);
}

TEST(DataParallel, TheOutputDeviceMayBeAnother) {
  const auto module = make_linear(5, 2, 1);
  const Variable x(random_tensor({7, 5}, 2));
  for (const int output : {1, 6}) {
    module->zero_grad();
    DataParallelOptions options = on_devices(cpu_devices(3));
    options.output_device = test_device(output);
    DataParallel wrapper(module, options);
    const Variable y = wrapper(x);
    EXPECT_EQ(y.device().index, output);
    expect_close(y.value(), (*module)(x).value(), kFloat64);
    sum(y).backward();
    EXPECT_EQ(module->bias().grad().device(), test_device(0));
    expect_close(module->bias().grad(), {7, 7}, kFloat64);
  }
}

TEST(DataParallel, OneDeviceIsAPlainCall) {
  const auto module =
      make_function_module({make_linear(5, 2, 1)}, [](nn::Module& self, const Variable& x) {
        EXPECT_TRUE(self.parameters()[0].is_leaf()) << "this is a replica";
        return call_child(self, 0, x);
      });
  DataParallelOptions options = on_devices(cpu_devices(1));
  DataParallel wrapper(module, options);
  EXPECT_EQ(wrapper(Variable(random_tensor({3, 5}, 1))).device(), test_device(0));
  options.output_device = test_device(4);
  EXPECT_EQ(data_parallel(module, Variable(random_tensor({3, 5}, 1)), options).device(),
            test_device(4));
}

TEST(DataParallel, CutsAlongTheGivenDimension) {
  const auto module =
      make_function_module({}, [](nn::Module&, const Variable& x) { return scale(x, 3); });
  const Tensor x = random_tensor({3, 4, 5}, 1);
  for (const std::size_t dim : {0, 1, 2}) {
    DataParallelOptions options = on_devices(cpu_devices(3));
    options.dim = dim;
    expect_close(data_parallel(module, Variable(x), options).value(), scale(Variable(x), 3).value(),
                 kExact);
  }
}

TEST(DataParallel, ScalarOutputsOfReplicasBecomeAVector) {
  const auto module =
      make_function_module({}, [](nn::Module&, const Variable& x) { return sum(x); });
  const Variable x(Tensor::full({10, 2}, 1.0));
  expect_close(data_parallel(module, x, on_devices(cpu_devices(4))).value(), {6, 6, 6, 2}, kExact);
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

TEST(DataParallel, WrapThenMoveAndMoveThenWrapBothWork) {
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

TEST(DataParallel, ParametersElsewhereAreAnErrorInPyTorchsWords) {
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

TEST(DataParallel, RefusesToWrapAWrappedModule) {
  const auto wrapper = std::make_shared<DataParallel>(make_linear(5, 2, 1));
  expect_error(ErrorCode::Usage, "wrapped in DataParallel already",
               [&] { DataParallel again(wrapper); });
  expect_error(ErrorCode::Usage, "no module", [] { DataParallel none(nullptr); });
}

TEST(DataParallel, RefusesADeviceThatStandsTwiceAtConstruction) {
  DataParallelOptions options;
  options.devices = {test_device(0), test_device(1), test_device(0)};
  expect_error(ErrorCode::Device, "twice",
               [&] { DataParallel wrapper(make_linear(5, 2, 1), options); });
}

TEST(DataParallel, RefusesDevicesOfTwoTypes) {
  LOCKSTEP_CPU_ONLY("both types are named");
  expect_error(ErrorCode::Device, "of one type, found cpu:0 and cuda:0", [] {
    DataParallel wrapper(make_linear(5, 2, 1), on_devices({{}, {DeviceType::cuda, 0}}));
  });
}

TEST(DataParallel, RefusesDevicesThatDoNotExist) {
  expect_error(ErrorCode::Device, "cpu:64 does not exist", [] {
    DataParallel wrapper(make_linear(5, 2, 1), on_devices({test_device(), test_device(64)}));
  });
  DataParallelOptions options = on_devices(cpu_devices(2));
  options.output_device = test_device(99);
  expect_error(ErrorCode::Device, "cpu:99 does not exist",
               [&] { DataParallel wrapper(make_linear(5, 2, 1), options); });
}

TEST(DataParallel, PrintsAsInPyTorch) {
  EXPECT_EQ(DataParallel(make_linear(10, 1, 1)).to_string(),
            "DataParallel(\n"
            "  (module): Linear(in_features=10, out_features=1, bias=True)\n"
            ")");
}

TEST(DataParallel, StateHasThePrefixModule) {
  const auto module = make_linear(10, 1, 1);
  const DataParallel wrapper(module);
  const nn::StateDict state = nn::state_dict(wrapper);
  ASSERT_EQ(state.size(), 2u);
  EXPECT_EQ(state[0].first, "module.weight");
  EXPECT_EQ(state[1].first, "module.bias");
  EXPECT_TRUE(wrapper.parameters()[0].is_same(module->weight()));
}

TEST(DataParallel, StateOfAWrapperDoesNotLoadIntoABareModuleAndTheErrorSaysWhatToDo) {
  const nn::StateDict state = nn::state_dict(DataParallel(make_linear(10, 1, 1)));
  const auto bare = make_linear(10, 1, 2);
  const auto load = [&] { nn::load_state_dict(*bare, state); };
  expect_error(ErrorCode::State,
               "Error(s) in loading state_dict for Linear: Missing key(s) in state_dict: "
               "\"weight\", \"bias\". Unexpected key(s) in state_dict: \"module.weight\", "
               "\"module.bias\".",
               load);
  expect_error(ErrorCode::State, "save the inner module's state_dict, or wrap this module", load);

  nn::load_state_dict(*bare, nn::strip_prefix(state, "module."));
  expect_close(bare->weight().value(), state[0].second, kExact);
  DataParallel wrapper(make_linear(10, 1, 3));
  nn::load_state_dict(wrapper, state);
  expect_close(wrapper.parameters()[0].value(), state[0].second, kExact);
}

TEST(DataParallel, FrozenParametersGetNoGradientAndDoNotMove) {
  const auto module = std::make_shared<nn::Sequential>(std::vector<std::shared_ptr<nn::Module>>{
      make_linear(5, 4, 1), std::make_shared<nn::ReLU>(), make_linear(4, 2, 2)});
  std::vector<Variable> parameters = module->parameters();
  parameters[0].set_requires_grad(RequiresGrad::no);
  parameters[3].set_requires_grad(RequiresGrad::no);
  DataParallel wrapper(module, on_devices(cpu_devices(3)));
  sum(wrapper(Variable(random_tensor({9, 5}, 1)))).backward();
  EXPECT_FALSE(parameters[0].grad().defined());
  EXPECT_TRUE(parameters[1].grad().defined());
  EXPECT_TRUE(parameters[2].grad().defined());
  EXPECT_FALSE(parameters[3].grad().defined());
}

TEST(DataParallel, RunsWithoutGradientsInNoGradMode) {
  const auto module = make_linear(5, 2, 1);
  DataParallel wrapper(module, on_devices(cpu_devices(3)));
  const NoGradScope no_grad;
  EXPECT_FALSE(wrapper(Variable(random_tensor({9, 5}, 1))).requires_grad());
}

TEST(DataParallel, BatchNormKeepsTheStatisticsOfReplica0) {
  const auto wrapped = std::make_shared<nn::BatchNorm1d>(3);
  nn::BatchNorm1d alone(3);
  DataParallel wrapper(wrapped, on_devices(cpu_devices(2)));
  for (std::uint64_t step = 0; step < 3; ++step) {
    const Tensor x = random_tensor({8, 3}, step, DType::float32);
    wrapper(Variable(x));
    alone(Variable(x.rows(0, 4)));
  }
  for (std::size_t i = 0; i < 3; ++i) {
    expect_close(wrapped->buffers()[i], alone.buffers()[i], kExact);
  }
  EXPECT_EQ(wrapped->buffers()[2].item(), 3);
}

TEST(DataParallel, AParameterSharedByTwoLayersGetsTheSumOfBothUses) {
  const auto layer = make_linear(4, 4, 1);
  const auto twice = make_function_module({layer}, [](nn::Module& self, const Variable& x) {
    return call_child(self, 0, tanh(call_child(self, 0, x)));
  });
  const Variable x(random_tensor({7, 4}, 2));
  sum((*twice)(x)).backward();
  const Tensor expected = layer->weight().grad();
  layer->zero_grad();
  DataParallel wrapper(twice, on_devices(cpu_devices(3)));
  sum(wrapper(x)).backward();
  expect_close(layer->weight().grad(), expected, kFloat64);
}

TEST(DataParallel, TwoForwardPassesBeforeOneBackwardAddUp) {
  const auto module = make_linear(5, 2, 1);
  DataParallel wrapper(module, on_devices(cpu_devices(3)));
  const Variable a = sum(wrapper(Variable(random_tensor({6, 5}, 1))));
  const Variable b = sum(wrapper(Variable(random_tensor({4, 5}, 2))));
  add(a, b).backward();
  expect_close(module->bias().grad(), {10, 10}, kFloat64);
}

TEST(DataParallel, ARetainedGraphRunsBackwardTwice) {
  const auto module = make_linear(5, 2, 1);
  DataParallel wrapper(module, on_devices(cpu_devices(3)));
  const Variable loss = sum(wrapper(Variable(random_tensor({6, 5}, 1))));
  loss.backward({}, Graph::retain);
  loss.backward();
  expect_close(module->bias().grad(), {12, 12}, kFloat64);
  expect_error(ErrorCode::State, "released", [&] { loss.backward(); });
}

TEST(DataParallel, ABatchWithoutRowsGivesAnOutputWithoutRows) {
  DataParallel wrapper(make_linear(5, 2, 1), on_devices(cpu_devices(3)));
  EXPECT_EQ(to_string(wrapper(Variable(Tensor::empty({0, 5}, DType::float64))).shape()), "[0, 2]");
}

TEST(DataParallel, AnErrorInAReplicaNamesItAndLeavesTheWrapperUsable) {
  bool is_broken = true;
  const auto module =
      make_function_module({make_linear(5, 2, 1)}, [&](nn::Module& self, const Variable& x) {
        if (is_broken && x.device().index == 1) fail(ErrorCode::Numeric, "layer", "no luck");
        return call_child(self, 0, x);
      });
  DataParallel wrapper(module, on_devices(cpu_devices(3)));
  const Variable x(random_tensor({6, 5}, 1));
  expect_error(ErrorCode::Numeric, "replica 1 on device cpu:1: [layer] no luck",
               [&] { wrapper(x); });
  is_broken = false;
  EXPECT_EQ(wrapper(x).shape()[0], 6u);
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

TEST(DataParallel, WarnsWhenADeviceHasLessThan75PercentOfAnothersThreads) {
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
