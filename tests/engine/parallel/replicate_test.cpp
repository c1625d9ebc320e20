#include "engine/parallel/data_parallel/steps.h"

#include <gtest/gtest.h>

#include "engine/autograd/ops/ops.h"
#include "engine/nn/layers.h"
#include "engine/runtime/logical_device.h"
#include "tests/engine/parallel/function_module.h"
#include "tests/support/devices.h"
#include "tests/support/expect_close.h"
#include "tests/support/expect_error.h"

namespace lockstep::testing {
namespace {

using parallel::broadcast_coalesced;
using parallel::replicate;

TEST(Replicate, PutsEqualParametersOnEveryDevice) {
  const auto module = make_linear(3, 2, 1);
  const std::vector<Device> devices = devices_of(test_device_type(), {0, 3, 1});
  const auto replicas = replicate(*module, devices);
  ASSERT_EQ(replicas.size(), 3u);
  for (std::size_t d = 0; d < replicas.size(); ++d) {
    const auto parameters = replicas[d]->named_parameters();
    ASSERT_EQ(parameters.size(), 2u);
    EXPECT_EQ(parameters[0].first, "weight");
    for (std::size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(to_string(parameters[i].second.device()), to_string(devices[d]));
      const Tensor original = module->parameters()[i].value();
      expect_close(parameters[i].second.value(), original, kExact);
      EXPECT_EQ(parameters[i].second.value().shares_memory_with(original), d == 0);
    }
  }
  EXPECT_TRUE(module->weight().is_leaf());
}

// The gradient of w when replica d's loss is factors[d] * sum(w).
Tensor summed_gradient(const std::vector<double>& factors) {
  const Variable w(Tensor::zeros({17}, DType::float64), RequiresGrad::yes);
  const std::vector<Device> devices = cpu_devices(factors.size());
  const auto copies = broadcast_coalesced({w}, devices);
  Variable loss(Tensor::zeros({}, DType::float64));
  for (std::size_t d = 0; d < factors.size(); ++d) {
    loss = add(loss, to(sum(scale(copies[d][0], factors[d])), devices[0]));
  }
  loss.backward();
  EXPECT_EQ(w.grad().device(), test_device(0));
  return w.grad();
}

// A 1 that is added to 1e16 is rounded away, so the results tell which two were added first.
TEST(Replicate, BackwardSumsInTheOrderOfTheDevices) {
  expect_close(summed_gradient({1, 1e16, -1e16}), std::vector<double>(17, 0.0), kExact);
  expect_close(summed_gradient({1e16, -1e16, 1}), std::vector<double>(17, 1.0), kExact);
  expect_close(summed_gradient({1e16, -1e16, 1, 1}), std::vector<double>(17, 2.0), kExact);
  expect_close(summed_gradient({1, 1, 1e16, -1e16}), std::vector<double>(17, 2.0), kExact);
}

// CPU devices reach each other's memory, so the first one holds its copy's gradient and the sum,
// however many devices there are.
TEST(Replicate, BackwardReadsTheGradientsOfCpuDevicesWhereTheyLie) {
  constexpr std::size_t kBytes = sizeof(double) << 16;
  for (const std::size_t num_devices : {2, 8}) {
    const Variable w(Tensor::zeros({kBytes / sizeof(double)}, DType::float64), RequiresGrad::yes);
    const std::vector<Device> devices = cpu_devices(num_devices);
    const auto copies = broadcast_coalesced({w}, devices);
    Variable loss(Tensor::zeros({}, DType::float64));
    for (std::size_t d = 0; d < num_devices; ++d) {
      loss = add(loss, to(sum(copies[d][0]), devices[0]));
    }
    runtime::MemoryPool& pool = runtime::logical_device(devices[0]).memory();
    pool.reset_peak();
    const std::size_t before = pool.statistics().peak_bytes;
    loss.backward();
    EXPECT_LT(pool.statistics().peak_bytes - before, 3 * kBytes) << num_devices;
  }
}

TEST(Replicate, OnlyReplica0sBuffersStay) {
  nn::BatchNorm1d norm(2);
  const auto replicas = replicate(norm, cpu_devices(2));
  replicas[0]->buffers()[0].fill(5);
  replicas[1]->buffers()[0].fill(7);
  expect_close(norm.buffers()[0], {5, 5}, kExact);
  expect_close(replicate(norm, cpu_devices(2))[1]->buffers()[0], {5, 5}, kExact);
}

// Counts its calls in a plain member, as no module should.
class Counting final : public nn::ModuleOf<Counting> {
 public:
  Variable forward(const Variable& x) override {
    ++num_calls;
    return x;
  }
  std::string type_name() const override { return "Counting"; }

  int num_calls = 0;
};

TEST(Replicate, PlainMembersOfReplicasAreLost) {
  Counting module;
  module.num_calls = 5;
  for (const auto& replica : replicate(module, cpu_devices(3))) {
    (*replica)(Variable(Tensor::zeros({1})));
    EXPECT_EQ(static_cast<const Counting&>(*replica).num_calls, 6) << "members are copied";
  }
  EXPECT_EQ(module.num_calls, 5);
}

TEST(Replicate, RefusesTensorsOnOtherDevices) {
  const auto refuses = [](const nn::Module& module, const std::string& words) {
    expect_error(ErrorCode::Device, words, [&] { replicate(module, cpu_devices(2)); });
  };
  const auto linear = make_linear(3, 2, 1);
  linear->to(test_device(1));
  refuses(*linear, "found one of them on device cpu:1: weight");
  nn::BatchNorm1d norm(2);
  std::vector<Tensor> buffers = norm.buffers();
  buffers[1] = buffers[1].to(test_device(2));
  norm.set_buffers(buffers);
  refuses(norm, "found one of them on device cpu:2: running_var");
  expect_error(ErrorCode::Usage, "at least one device", [&] { replicate(norm, {}); });
}

}  // namespace
}  // namespace lockstep::testing
