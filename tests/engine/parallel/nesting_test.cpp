// Parallel calls inside and beside parallel calls: they share the devices' workers and must never
// wait for each other in a circle.
#include <gtest/gtest.h>

#include <barrier>
#include <thread>

#include "engine/autograd/ops/ops.h"
#include "engine/parallel/data_parallel/data_parallel.h"
#include "tests/engine/parallel/function_module.h"
#include "tests/support/devices.h"
#include "tests/support/expect_close.h"

namespace lockstep::testing {
namespace {

using parallel::data_parallel;
using parallel::DataParallel;
using parallel::DataParallelOptions;

DataParallelOptions on_devices(const std::vector<int>& ids) {
  DataParallelOptions options;
  options.devices = devices_of(test_device_type(), ids);
  return options;
}

void expect_gradients_of_plain_run(const std::shared_ptr<nn::Linear>& linear,
                                   const std::shared_ptr<nn::Module>& module,
                                   const DataParallelOptions& options) {
  const Variable x(random_tensor({24, 5}, 2));
  linear->zero_grad();
  const Variable expected_output = (*linear)(x);
  sum(tanh(expected_output)).backward();
  const Tensor expected = linear->weight().grad();
  linear->zero_grad();
  const Variable y = data_parallel(module, x, options);
  expect_close(y.value(), expected_output.value(), kFloat64);
  sum(tanh(y)).backward();
  expect_close(linear->weight().grad(), expected, kFloat64);
}

TEST(Nesting, ReplicasMayUseEachOthersDevices) {
  const auto linear = make_linear(5, 3, 1);
  // Replica 1 hands work to cpu:2 while replica 2 hands work to cpu:1, both inside their forward.
  std::barrier all_inside(2);
  const auto module = make_function_module({linear}, [&](nn::Module& self, const Variable& x) {
    const int device = x.device().index;
    if (device == 0) return call_child(self, 0, x);
    all_inside.arrive_and_wait();
    return data_parallel(self.children()[0].second, x, on_devices({device, 3 - device}));
  });
  for (int round = 0; round < 5; ++round) {
    expect_gradients_of_plain_run(linear, module, on_devices({0, 1, 2}));
  }
}

TEST(Nesting, TwoThreadsMayUseTheSameDevices) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([t] {
      const auto linear = make_linear(5, 3, static_cast<std::uint64_t>(t));
      linear->to(test_device(t));
      DataParallel wrapper(linear, on_devices({t, 1 - t, 2}));
      for (int step = 0; step < 20; ++step) {
        sum(wrapper(Variable(random_tensor({6, 5}, 1)))).backward();
      }
      expect_close(linear->bias().grad(), std::vector<double>(3, 120.0), kFloat64);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace lockstep::testing
