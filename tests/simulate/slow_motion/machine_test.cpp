#include "simulate/slow_motion/machine.h"

#include <gtest/gtest.h>

#include <array>
#include <map>
#include <memory>
#include <utility>

#include "engine/autograd/ops/images.h"
#include "engine/comm/thread_group.h"
#include "engine/core/error.h"
#include "engine/runtime/logical_device.h"
#include "engine/tensor/tensor.h"
#include "engine/trace/recorder.h"
#include "simulate/predict/kernel_cost.h"
#include "simulate/slow_motion/paced_backend.h"
#include "simulate/slow_motion/simulated_link.h"
#include "tests/support/expect_error.h"

namespace lockstep::slow_motion {
namespace {

using ::lockstep::testing::expect_error;

// Two GPUs below one switch: 10 GB/s and 1 us a link, so 2 us from one to the other.
constexpr const char* kPair = R"({
  "schema": "lockstep.topology/1", "name": "pair", "source": "a test",
  "device": {"name": "test GPU", "tflops": 10, "memory_gb_per_s": 100, "memory_gb": 1,
             "launch_us": 5},
  "host": {"gb_per_s": 10, "thread_gb_per_s": 5},
  "nodes": [{"name": "gpu0", "kind": "gpu"}, {"name": "gpu1", "kind": "gpu"},
            {"name": "plx0", "kind": "switch"}, {"name": "cpu0", "kind": "cpu"}],
  "links": [{"from": "gpu0", "to": "plx0", "kind": "pcie", "gb_per_s": 10},
            {"from": "gpu1", "to": "plx0", "kind": "pcie", "gb_per_s": 10},
            {"from": "plx0", "to": "cpu0", "kind": "pcie", "gb_per_s": 10}]})";

MachineOptions pair(Pace pace = Pace::none, double factor = 1) {
  MachineOptions options;
  options.topology = predict::parse_topology("pair", kPair);
  options.devices = {0, 1};
  options.factor = factor;
  options.pace = pace;
  options.patience = std::chrono::hours(1);
  return options;
}

// Seconds of modelled time since the machine was made.
double seconds(const Machine& machine, Time time) {
  return runtime::to_seconds(time - machine.origin()) / machine.factor();
}

void nothing() {}

class MachineTest : public ::testing::Test {
 protected:
  Memory part(std::size_t begin, std::size_t end) const { return {&bytes[begin], end - begin}; }
  // A kernel that reads and writes these, and takes 10 us on a device of usual speed.
  void run(Machine& machine, int device, const Memory& read, const Memory& written,
           Kernel::Kind kind = Kernel::Kind::computes) const {
    const std::array reads{read};
    const std::array writes{written};
    machine.run(device, {"kernel", 10e-6, kind, reads, writes}, nothing);
  }
  std::vector<std::byte> bytes = std::vector<std::byte>(1 << 20);
  static constexpr double kFast = 1 - 0.02;  // of two devices one is up to so much faster,
  static constexpr double kSlow = 1 + 0.02;  // the other slower
};

TEST_F(MachineTest, KernelsOfADeviceFollowEachOther) {
  Machine machine(pair());
  for (int i = 1; i <= 3; ++i) {
    run(machine, 0, part(0, 8), part(8, 16));
    EXPECT_NEAR(seconds(machine, machine.reached(0)), i * 10e-6, i * 0.2e-6);
  }
  EXPECT_EQ(machine.reached(1), machine.origin());
  EXPECT_EQ(machine.num_kernels(), 3u);
}

TEST_F(MachineTest, AKernelWaitsForWhatItIsSent) {
  Machine machine(pair());
  run(machine, 0, {}, part(0, 100'000));
  run(machine, 1, part(0, 100'000), part(200'000, 200'100));
  // 10 us on the first device, 100 kB over 10 GB/s, two links' latency, 10 us on the second.
  EXPECT_NEAR(seconds(machine, machine.reached(1)), 32e-6, 0.6e-6);
}

TEST_F(MachineTest, ACopyFromAnotherDeviceIsAMessage) {
  Machine machine(pair());
  run(machine, 0, {}, part(0, 100'000));
  run(machine, 1, part(0, 100'000), part(200'000, 300'000), Kernel::Kind::copies);
  EXPECT_NEAR(seconds(machine, machine.written(part(200'000, 200'001))), 22e-6, 0.4e-6);
  // The stream goes on when the last byte has been sent.
  EXPECT_NEAR(seconds(machine, machine.reached(1)), 20e-6, 0.4e-6);
}

TEST_F(MachineTest, MessagesOverOneLinkShareIt) {
  Machine machine(pair());
  const Time begin = machine.origin();
  EXPECT_NEAR(seconds(machine, machine.deliver(0, 1, begin, 100'000).arrives), 12e-6, 1e-9);
  EXPECT_NEAR(seconds(machine, machine.deliver(0, 1, begin, 100'000).arrives), 22e-6, 1e-9);
  // The other direction is free.
  EXPECT_NEAR(seconds(machine, machine.deliver(1, 0, begin, 100'000).arrives), 12e-6, 1e-9);
  double total = 0;
  for (const double sent : machine.bytes_by_hop()) total += sent;
  EXPECT_EQ(total, 2 * 300'000);
}

TEST_F(MachineTest, MessagesWithoutPeerAccessQueueInHostMemory) {
  MachineOptions options = pair();
  options.topology.peer_access = predict::PeerAccess::listed;
  options.topology.staging = {.bytes_per_second = 5e9};
  Machine machine(options);
  const Time begin = machine.origin();
  // 20 us through the socket's memory, and four links' latency; the way back waits for it.
  EXPECT_NEAR(seconds(machine, machine.deliver(0, 1, begin, 100'000).arrives), 24e-6, 1e-9);
  EXPECT_NEAR(seconds(machine, machine.deliver(1, 0, begin, 100'000).arrives), 44e-6, 1e-9);
}

TEST_F(MachineTest, WhatIsGivenCostsNothing) {
  Machine machine(pair());
  machine.give(1, part(0, 64));
  run(machine, 1, part(0, 64), part(64, 128));
  EXPECT_NEAR(seconds(machine, machine.reached(1)), 10e-6, 0.2e-6);
}

TEST_F(MachineTest, PacedWorkTakesItsTimeTimesTheFactor) {
  Machine machine(pair(Pace::sleeping, 2000));
  run(machine, 0, {}, part(0, 8));
  EXPECT_GE(runtime::now() - machine.origin(), std::chrono::microseconds(19'600));
}

TEST_F(MachineTest, DevicesThatTheTopologyHasNotAreRefused) {
  MachineOptions options = pair();
  options.devices = {0, 2};
  expect_error(ErrorCode::Usage, "'pair' has 2 devices, and device 2 was asked for",
               [&] { const Machine machine(options); });
  Machine machine(pair());
  expect_error(ErrorCode::Usage, "cpu:7 takes no part", [&] { machine.reached(7); });
}

// --- an installed machine: tensors and ranks know nothing of it ---

TEST_F(MachineTest, TensorsTakeTheMachinesTime) {
  Rng rng(7);
  const Tensor a = Tensor::uniform({64, 64}, -1, 1, rng);
  const Tensor expected = Tensor::empty({64, 64});
  expected.backend().add(expected.stream(), {a.view(), a.view(), expected.view()});
  Machine machine(pair());
  const InstalledMachine installed(machine);
  const Tensor sum = Tensor::empty({64, 64});
  sum.backend().add(sum.stream(), {a.view(), a.view(), sum.view()});
  EXPECT_EQ(sum.to_vector<float>(), expected.to_vector<float>());
  const double usual = predict::traffic_seconds(machine.topology().device, 3 * 64 * 64 * 4);
  EXPECT_NEAR(seconds(machine, machine.reached(0)), usual, 0.02 * usual);
}

TEST_F(MachineTest, AConvolutionTakesWhatThePredictorSays) {
  Rng rng(7);
  const Variable x(Tensor::uniform({4, 12, 12, 3}, -1, 1, rng));
  const Variable weight(Tensor::uniform({8, 3, 3, 3}, -1, 1, rng));
  Machine machine(pair());
  const InstalledMachine installed(machine);
  const Variable y = conv2d(x, weight, {});
  predict::LayerShape layer{4 * 10 * 10, 27, 8};
  layer.image_bytes = 4 * (4 * 12 * 12 * 3 + 4 * 10 * 10 * 8);
  const double usual = predict::forward_seconds(machine.topology().device, layer);
  EXPECT_NEAR(seconds(machine, machine.reached(0)), usual, 0.02 * usual);
}

TEST(Listening, HearsSizesAndLeavesResults) {
  struct Listener final : KernelListener {
    void on_kernel(kernels::Stream&, const KernelSizes& kernel) override {
      if (kernel.product) products.push_back(*kernel.product);
      traffic += kernel.traffic_bytes;
    }
    std::vector<predict::LayerShape> products;
    double traffic = 0;
  } listener;
  Rng rng(7);
  const Variable x(Tensor::uniform({2, 6, 6, 1}, -1, 1, rng));
  const Variable weight(Tensor::uniform({4, 3, 3, 1}, -1, 1, rng), RequiresGrad::yes);
  const auto run = [&] { return max_pool2d(conv2d(x, weight, {}), 2, {2, 0}); };
  const std::vector<float> expected = run().value().to_vector<float>();
  {
    const Listening listening(DeviceType::cpu, listener);
    EXPECT_EQ(run().value().to_vector<float>(), expected);
  }
  run();  // unheard
  ASSERT_EQ(listener.products.size(), 1u);
  EXPECT_EQ(listener.products[0].rows, 2 * 4 * 4);
  EXPECT_EQ(listener.products[0].inputs, 9);
  EXPECT_EQ(listener.products[0].image_bytes, 4 * (2 * 36 + 2 * 16 * 4));
  EXPECT_EQ(listener.traffic, 4 * 2 * 4 * (16 + 4 + 4));  // what comes in, out, and who won
}

TEST_F(MachineTest, RanksSumTheSameBits) {
  constexpr std::size_t kElements = 25'000;  // 100 kB
  const auto sum_of_two = [](double& end) {
    std::vector<float> sum;
    const auto add_up = [&](comm::Communicator& group) {
      Rng rng(static_cast<std::uint64_t>(group.rank()));
      const Tensor mine = Tensor::uniform({kElements}, -1, 1, rng, DType::float32,
                                          Device{DeviceType::cpu, group.rank()});
      group.all_reduce(mine).wait();
      if (group.rank() == 0) sum = mine.to_vector<float>();
    };
    comm::run_ranks(2, add_up, with_simulated_links(2));
    if (machine() != nullptr) end = seconds(*machine(), machine()->end());
    return sum;
  };
  double unused = 0;
  const std::vector<float> expected = sum_of_two(unused);
  Machine machine(pair());
  const InstalledMachine installed(machine);
  double end = 0;
  EXPECT_EQ(sum_of_two(end), expected);
  // At least half of the data each way, and its latency; at most a few such steps.
  EXPECT_GT(end, 5e-6 + 2e-6);
  EXPECT_LT(end, 100e-6);
}

TEST_F(MachineTest, GroupsHaveARankPerDevice) {
  Machine machine(pair());
  const InstalledMachine installed(machine);
  expect_error(ErrorCode::Usage, "the simulated machine has devices for 2 ranks, found 3 ranks",
               [] { with_simulated_links(3); });
}

}  // namespace
}  // namespace lockstep::slow_motion
