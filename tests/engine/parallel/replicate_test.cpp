#include "engine/parallel/data_parallel/stages.h"

#include <gtest/gtest.h>

#include <cmath>

#include "engine/autograd/ops/ops.h"
#include "engine/nn/layers.h"
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
      expect_close(parameters[i].second.value(), module->parameters()[i].value(), kExact);
    }
  }
}

TEST(Replicate, Replica0SharesMemoryWithTheOriginalAndOthersDoNot) {
  const auto module = make_linear(3, 2, 1);
  const auto replicas = replicate(*module, cpu_devices(2));
  const Tensor original = module->weight().value();
  EXPECT_TRUE(replicas[0]->parameters()[0].value().shares_memory_with(original));
  EXPECT_FALSE(replicas[1]->parameters()[0].value().shares_memory_with(original));
}

class MemberLayer final : public nn::ModuleOf<MemberLayer> {
 public:
  MemberLayer() { register_child("fc", fc); }
  Variable forward(const Variable& x) override { return fc(x); }

 private:
  nn::Linear fc{3, 2};
};

TEST(Replicate, AModuleWithMemberLayersRunsOnEveryDevice) {
  MemberLayer module;
  const auto replicas = replicate(module, cpu_devices(2));
  const Variable y = (*replicas[1])(Tensor::full({4, 3}, 1, DType::float32, cpu_devices(2)[1]));
  EXPECT_EQ(y.device(), cpu_devices(2)[1]);
  sum(y).backward();
  EXPECT_EQ(module.parameters()[1].grad()[0], 4);
}

TEST(Replicate, LeavesTheOriginalAsItWas) {
  const auto module = make_linear(3, 2, 1);
  const Variable weight = module->weight();
  replicate(*module, cpu_devices(3));
  EXPECT_TRUE(module->weight().is_same(weight));
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
TEST(Replicate, BackwardSumsOntoDevice0InTheOrderOfTheDevices) {
  expect_close(summed_gradient({1, 1e16, -1e16}), std::vector<double>(17, 0.0), kExact);
  expect_close(summed_gradient({1e16, -1e16, 1}), std::vector<double>(17, 1.0), kExact);
  expect_close(summed_gradient({1e16, -1e16, 1, 1}), std::vector<double>(17, 2.0), kExact);
  expect_close(summed_gradient({1, 1, 1e16, -1e16}), std::vector<double>(17, 2.0), kExact);
}

TEST(Replicate, ParametersThatNoReplicaUsedGetNoGradient) {
  const Variable used = Variable(random_tensor({3}, 1), RequiresGrad::yes);
  const Variable unused = Variable(random_tensor({3}, 2), RequiresGrad::yes);
  const auto copies = broadcast_coalesced({used, unused}, cpu_devices(2));
  sum(to(copies[1][0], {})).backward();
  expect_close(used.grad(), {1, 1, 1}, kExact);
  EXPECT_FALSE(unused.grad().defined());
}

TEST(Replicate, FrozenParametersStayFrozen) {
  const auto module = make_linear(3, 2, 1);
  std::vector<Variable> parameters = module->parameters();
  parameters[0].set_requires_grad(RequiresGrad::no);
  const auto replicas = replicate(*module, cpu_devices(2));
  ASSERT_EQ(replicas.size(), 2u);
  for (const auto& replica : replicas) {
    EXPECT_FALSE(replica->parameters()[0].requires_grad());
    EXPECT_TRUE(replica->parameters()[1].requires_grad());
  }
}

TEST(Replicate, BuffersAreCopiedWithoutGradient) {
  nn::BatchNorm1d norm(4);
  norm.buffers()[0].fill(3);
  const auto replicas = replicate(norm, cpu_devices(2));
  EXPECT_TRUE(replicas[0]->buffers()[0].shares_memory_with(norm.buffers()[0]));
  EXPECT_FALSE(replicas[1]->buffers()[0].shares_memory_with(norm.buffers()[0]));
  expect_close(replicas[1]->buffers()[0], {3, 3, 3, 3}, kExact);
  EXPECT_EQ(replicas[1]->buffers()[0].device(), test_device(1));
}

TEST(Replicate, WhatReplica0WritesIntoABufferStaysAndWhatOthersWriteIsLost) {
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

TEST(Replicate, WhatForwardWritesIntoAPlainMemberIsLostWithTheReplica) {
  Counting module;
  module.num_calls = 5;
  for (const auto& replica : replicate(module, cpu_devices(3))) {
    (*replica)(Variable(Tensor::zeros({1})));
    EXPECT_EQ(static_cast<const Counting&>(*replica).num_calls, 6) << "members are copied";
  }
  EXPECT_EQ(module.num_calls, 5);
}

TEST(Replicate, KeepsTrainingOrEvaluation) {
  nn::BatchNorm1d norm(2);
  norm.eval();
  EXPECT_FALSE(replicate(norm, cpu_devices(2))[1]->is_training());
}

TEST(Replicate, RefusesAParameterThatIsNotOnTheFirstDeviceInPyTorchsWords) {
  const auto module = make_linear(3, 2, 1);
  module->to(test_device(1));
  const auto call = [&] { replicate(*module, cpu_devices(2)); };
  expect_error(ErrorCode::Device,
               "module must have its parameters and buffers on device cpu:0 (device_ids[0]) but "
               "found one of them on device cpu:1",
               call);
  expect_error(ErrorCode::Device, "all tensors must be on devices[0]", call);
  expect_error(ErrorCode::Device, "weight", call);
}

TEST(Replicate, RefusesABufferThatIsNotOnTheFirstDevice) {
  nn::BatchNorm1d norm(2);
  std::vector<Tensor> buffers = norm.buffers();
  buffers[1] = buffers[1].to(test_device(2));
  norm.set_buffers(buffers);
  expect_error(ErrorCode::Device, "found one of them on device cpu:2: running_var",
               [&] { replicate(norm, cpu_devices(2)); });
}

TEST(Replicate, NeedsADevice) {
  expect_error(ErrorCode::Usage, "at least one device",
               [] { replicate(*make_linear(1, 1, 1), {}); });
}

}  // namespace
}  // namespace lockstep::testing
