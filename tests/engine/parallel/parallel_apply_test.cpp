#include "engine/parallel/data_parallel/steps.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <set>

#include "engine/autograd/ops/ops.h"
#include "engine/autograd/variable.h"
#include "engine/core/error.h"
#include "tests/engine/parallel/function_module.h"
#include "tests/support/devices.h"
#include "tests/support/expect_error.h"

namespace lockstep::testing {
namespace {

using parallel::parallel_apply;

std::vector<Variable> inputs_on(const std::vector<Device>& devices) {
  std::vector<Variable> inputs;
  for (const Device device : devices) {
    inputs.emplace_back(Tensor::full({2, 1}, device.index, DType::float64, device));
  }
  return inputs;
}

std::vector<std::shared_ptr<nn::Module>> same_module(std::size_t count,
                                                     const FunctionModule::Forward& forward) {
  return {count, make_function_module({}, forward)};
}

TEST(ParallelApply, ReplicasRunAtTheSameTime) {
  std::barrier all_inside(4);  // passed only if all four are inside at once
  const auto outputs = parallel_apply(same_module(4,
                                                  [&](nn::Module&, const Variable& x) {
                                                    all_inside.arrive_and_wait();
                                                    return x;
                                                  }),
                                      inputs_on(cpu_devices(4)));
  EXPECT_EQ(outputs.size(), 4u);
}

TEST(ParallelApply, RaisesTheErrorOfTheLowestReplica) {
  // Replicas run on devices 0, 3, 7, 5 and 1; replica 0 runs on the caller's thread.
  const auto inputs = inputs_on(devices_of(test_device_type(), {0, 3, 7, 5, 1}));
  const auto expect_lowest = [&](const std::set<int>& bad_devices, const std::string& words) {
    std::atomic<std::size_t> num_completed = 0;
    const auto run = [&](nn::Module&, const Variable& x) -> Variable {
      const int device = x.device().index;
      if (bad_devices.contains(device)) fail(ErrorCode::Shape, "layer", "cannot run on {}", device);
      ++num_completed;
      return x;
    };
    expect_error(ErrorCode::Shape, words, [&] { parallel_apply(same_module(5, run), inputs); });
    EXPECT_EQ(num_completed, 5 - bad_devices.size()) << "the others run to their end";
  };
  expect_lowest({5, 7}, "replica 2 on device cpu:7: [layer] cannot run on 7");
  expect_lowest({0}, "replica 0 on device cpu:0: [layer] cannot run on 0");
}

TEST(ParallelApply, GradModeCarriesOverToEveryReplica) {
  std::barrier all_inside(3);  // none of them on the caller's thread but the first
  const auto run = [&](nn::Module&, const Variable& x) {
    all_inside.arrive_and_wait();
    Variable weight(Tensor::full({1, 1}, 1.0, DType::float64, x.device()), RequiresGrad::yes);
    return matmul(x, weight);
  };
  const auto inputs = inputs_on(cpu_devices(3));
  const auto count_with_gradient = [&] {
    const std::vector<Variable> outputs = parallel_apply(same_module(3, run), inputs);
    EXPECT_EQ(outputs.size(), 3u);
    return std::ranges::count_if(outputs, &Variable::requires_grad);
  };
  EXPECT_EQ(count_with_gradient(), 3);
  const NoGradScope no_grad;
  EXPECT_EQ(count_with_gradient(), 0);
}

}  // namespace
}  // namespace lockstep::testing
