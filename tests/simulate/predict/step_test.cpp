#include "simulate/predict/step.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "engine/core/error.h"
#include "simulate/predict/kernel_cost.h"

namespace lockstep::predict {
namespace {

// 20 layers of 10 MB each, 1 ms forward and 2 ms backward.
Workload workload() {
  Workload work;
  for (int i = 0; i < 20; ++i) {
    work.layers.push_back({"layer" + std::to_string(i), 1e-3, 2e-3, {10'000'000}});
  }
  work.optimizer_seconds = 1e-3;
  return work;
}

PredictedStep predict(const std::string& topology_name, std::size_t devices, Strategy strategy,
                      const Workload& work = workload(),
                      std::vector<std::size_t> limits = {std::size_t{1} << 20,
                                                         std::size_t{25} << 20}) {
  const Topology topology = find_topology(topology_name);
  Network network(topology);
  StepOptions options;
  options.strategy = strategy;
  options.num_devices = devices;
  options.bucket_byte_limits = std::move(limits);
  return predict_step(network, work, options);
}

TEST(Step, OfMicroBatchesSendsGradientsWithTheLast) {
  const Topology topology = find_topology("dgx-a100");
  Network network(topology);
  StepOptions options{.strategy = Strategy::ddp, .num_devices = 8};
  const PredictedStep one = predict_step(network, workload(), options);
  options.num_accumulated = 4;
  const PredictedStep four = predict_step(network, workload(), options);
  EXPECT_EQ(four.comm_bytes_per_device, one.comm_bytes_per_device);
  EXPECT_NEAR(four.breakdown.comm, one.breakdown.comm, 1e-9);
  EXPECT_NEAR(four.breakdown.exposed_comm, one.breakdown.exposed_comm, 1e-4);
  EXPECT_NEAR(four.step_seconds - four.breakdown.wait - (one.step_seconds - one.breakdown.wait),
              3 * 60e-3, 1e-3);
}

TEST(Step, OfDdpWaitsForRunningStatistics) {
  Workload work = workload();
  const PredictedStep without = predict("dgx1-v100", 8, Strategy::ddp, work);
  work.layers[0].buffer_bytes = std::vector<std::size_t>(100, 64);
  const PredictedStep with = predict("dgx1-v100", 8, Strategy::ddp, work);
  EXPECT_GT(with.step_seconds, without.step_seconds + 5e-6);  // a launch, and more
  EXPECT_LT(with.step_seconds, without.step_seconds + 10 * 5e-6) << "they travel together";
  EXPECT_GT(with.comm_bytes_per_device, without.comm_bytes_per_device);
  const double dp = predict("dgx1-v100", 8, Strategy::data_parallel, work).step_seconds;
  EXPECT_EQ(dp, predict("dgx1-v100", 8, Strategy::data_parallel).step_seconds);
}

TEST(Step, PartsAddUpToIt) {
  for (const Strategy strategy :
       {Strategy::data_parallel, Strategy::cpu_reduce, Strategy::cpu_parameter_server,
        Strategy::device_all_reduce, Strategy::device_parameter_server, Strategy::nccl_replicated,
        Strategy::ddp, Strategy::zero1, Strategy::zero2, Strategy::zero3}) {
    const PredictedStep step = predict("titanx-pascal-dual-root-8", 4, strategy);
    double total = 0;
    for (const auto& [name, part] : trace::kBreakdownParts) total += step.breakdown.*part;
    EXPECT_NEAR(total, step.step_seconds, 1e-9) << to_string(strategy);
    EXPECT_GT(step.step_seconds, 61e-3) << to_string(strategy);
    EXPECT_GT(step.comm_bytes_per_device, 0) << to_string(strategy);
  }
}

TEST(Step, ParametersOnDevicesTravelBesideThePasses) {
  const PredictedStep behind = predict("k80-p2-16x", 4, Strategy::device_all_reduce);
  const PredictedStep beside = predict("k80-p2-16x", 4, Strategy::device_parameter_server);
  EXPECT_EQ(beside.comm_bytes_per_device, behind.comm_bytes_per_device);
  EXPECT_GT(beside.breakdown.exposed_comm, 0);
  EXPECT_LT(beside.breakdown.exposed_comm, behind.breakdown.exposed_comm);
}

TEST(Step, OverlapHidesWhatBucketsAllow) {
  const PredictedStep buckets = predict("dgx1-v100", 8, Strategy::ddp);
  const std::size_t all = std::size_t{1} << 30;
  const PredictedStep at_the_end = predict("dgx1-v100", 8, Strategy::ddp, workload(), {all, all});
  EXPECT_LT(buckets.breakdown.exposed_comm, 0.5 * at_the_end.breakdown.exposed_comm);
  EXPECT_GT(buckets.breakdown.overlapped_comm, 0);
  EXPECT_EQ(at_the_end.breakdown.overlapped_comm, 0);
}

// Without overlap, a step's messages are as many, and nothing hides them.
void expect_sent_behind_its_passes(const std::string& machine, Strategy strategy) {
  const Topology topology = find_topology(machine);
  Network network(topology);
  StepOptions options{.strategy = strategy, .num_devices = 8};
  const PredictedStep on = predict_step(network, workload(), options);
  options.overlap = StepOptions::Overlap::off;
  const PredictedStep off = predict_step(network, workload(), options);
  EXPECT_EQ(off.breakdown.overlapped_comm, 0);
  EXPECT_NEAR(off.breakdown.exposed_comm, off.breakdown.comm, 1e-9);
  EXPECT_GT(off.step_seconds, on.step_seconds);
  EXPECT_EQ(off.comm_bytes_per_device, on.comm_bytes_per_device);
}

TEST(Step, WithoutOverlapAllGradientsWaitForTheBackwardPass) {
  expect_sent_behind_its_passes("rtx4090-pcie4-8", Strategy::ddp);
}

TEST(Step, WaitsForTheSlowestOfMoreDevices) {
  EXPECT_EQ(expected_largest_deviate(1), 0);
  EXPECT_NEAR(expected_largest_deviate(2), 0.564, 0.03);  // exact: 1 / sqrt(pi)
  EXPECT_NEAR(expected_largest_deviate(8), 1.424, 0.02);
}

// DataParallel's first device has the loss of all rows, and adds up the gradients; that is where
// the others' time goes.
TEST(Step, DataParallelPaysForAllThatItMoves) {
  Workload small;
  for (int i = 0; i < 4; ++i) small.layers.push_back({"layer", 1e-6, 2e-6, {4000}});
  small.fixed_seconds = 10e-6;
  const PredictedStep step = predict("dgx1-v100", 4, Strategy::data_parallel, small);
  EXPECT_NEAR(step.breakdown.forward, 4e-6, 1e-12);
  EXPECT_NEAR(step.breakdown.backward, 8e-6, 1e-12);
  EXPECT_NEAR(step.breakdown.host, 10e-6, 1e-12);
  // Four sums, each a launch of 5 us at least.
  EXPECT_GT(step.step_seconds, 22e-6 + 4 * 5e-6);
  const auto named = [&](std::string_view name) {
    return std::ranges::count_if(step.work, [&](const Work& work) { return name == work.name; });
  };
  for (const char* name : {"scatter and replicate", "gather", "scatter gradients", "reduce"}) {
    EXPECT_EQ(named(name), 1) << name;
  }
}

// PyTorch's DataParallel copies the modules of one replica after the other before it launches
// anything, and hides launches behind the forward pass as far as that lasts.
TEST(Step, DataParallelOfPytorchWaitsForItsInterpreter) {
  const Topology topology = find_topology("dgx-a100");
  Network network(topology);
  const auto predict_with = [&](std::size_t devices, double copy, double forward) {
    StepOptions options{.strategy = Strategy::data_parallel, .num_devices = devices};
    options.python = PythonHost{copy, forward};
    return predict_step(network, workload(), options);
  };
  for (const std::size_t devices : {2, 4, 8}) {
    const auto count = static_cast<double>(devices);
    const PredictedStep copying = predict_with(devices, 10e-3, 0);
    EXPECT_NEAR(copying.step_seconds - predict_with(devices, 5e-3, 0).step_seconds, count * 5e-3,
                1e-9);
    EXPECT_NEAR(copying.breakdown.host, count * 10e-3, 1e-9);
    // The pass takes 20 ms, and begins with the first launch.
    const PredictedStep hidden = predict_with(devices, 10e-3, 19e-3 / count);
    EXPECT_NEAR(hidden.step_seconds, copying.step_seconds, 1.1e-3);
    const PredictedStep launching = predict_with(devices, 10e-3, 20e-3);
    EXPECT_NEAR(launching.step_seconds - copying.step_seconds, (count - 1) * 20e-3, 1.1e-3);
    double total = 0;
    for (const auto& [name, part] : trace::kBreakdownParts) total += launching.breakdown.*part;
    EXPECT_NEAR(total, launching.step_seconds, 1e-9);
  }
  EXPECT_NEAR(predict_with(1, 10e-3, 20e-3).step_seconds, 61e-3, 1e-9) << "one device has no copy";
}

TEST(Step, StrategiesOfOneProcessStayInOneHost) {
  for (const Strategy strategy :
       {Strategy::data_parallel, Strategy::device_all_reduce, Strategy::device_parameter_server}) {
    EXPECT_GT(predict("dgx1-v100*2@100gbe", 8, strategy).step_seconds, 0);
    EXPECT_THROW(predict("dgx1-v100*2@100gbe", 16, strategy), Error);
  }
  EXPECT_GT(predict("dgx1-v100*2@100gbe", 16, Strategy::cpu_reduce).step_seconds, 0);
}

// As many bytes as DDP, half as many again for the parameters of the third stage; the update is
// shared.
TEST(Step, ZeroMovesWhatItsStagesMove) {
  const double ddp = predict("dgx1-v100", 8, Strategy::ddp).comm_bytes_per_device;
  const PredictedStep one = predict("dgx1-v100", 8, Strategy::zero1);
  const PredictedStep three = predict("dgx1-v100", 8, Strategy::zero3);
  EXPECT_NEAR(one.comm_bytes_per_device, ddp, 1);
  EXPECT_NEAR(three.comm_bytes_per_device, 1.5 * ddp, 1);
  for (const PredictedStep& step : {one, three}) {
    EXPECT_NEAR(step.breakdown.optimizer, 1e-3 / 8, 1e-9);
    EXPECT_NEAR(step.breakdown.forward + step.breakdown.backward, 60e-3, 15e-3);
  }
  EXPECT_EQ(predict("dgx1-v100", 8, Strategy::zero2).step_seconds, one.step_seconds);
  // Both gather beside their layers; the third gathers for backward, too.
  EXPECT_GT(one.breakdown.overlapped_comm, 0);
  EXPECT_GT(three.breakdown.overlapped_comm + three.breakdown.exposed_comm,
            one.breakdown.overlapped_comm + one.breakdown.exposed_comm);
}

// zero1 keeps the gradients of all micro-batches; the others' are gone after each, and so are the
// parameters of the third stage.
TEST(Step, ZeroOfMicroBatchesMovesWhatItDoesNotKeep) {
  const Topology topology = find_topology("dgx-a100*2@8x200gbe");
  Network network(topology);
  const auto gigabytes = [&](Strategy strategy, std::size_t batches, StepOptions options = {}) {
    options.strategy = strategy;
    options.num_devices = 16;
    options.num_accumulated = batches;
    return predict_step(network, workload(), options).comm_bytes_per_device / (15.0 / 16 * 200e6);
  };
  EXPECT_NEAR(gigabytes(Strategy::zero1, 4), 1 + 1, 1e-6);
  EXPECT_NEAR(gigabytes(Strategy::zero2, 4), 1 + 4, 1e-6);
  EXPECT_NEAR(gigabytes(Strategy::zero3, 4), 4 * (2 + 1), 1e-6);
  const StepOptions no_sync{.reduced = StepOptions::Reduced::with_last};
  EXPECT_NEAR(gigabytes(Strategy::zero2, 4, no_sync), 1 + 1, 1e-6);
  EXPECT_NEAR(gigabytes(Strategy::zero3, 4, no_sync), 4 * 2 + 1, 1e-6);
  EXPECT_NEAR(gigabytes(Strategy::zero3, 1, {.gathered_share = 0.5}), 2 * 0.5 + 1, 1e-6);

  StepOptions options{.strategy = Strategy::zero3, .num_devices = 16, .num_accumulated = 4};
  const PredictedStep each = predict_step(network, workload(), options);
  options.reduced = StepOptions::Reduced::with_last;
  const PredictedStep last = predict_step(network, workload(), options);
  options.num_accumulated = 1;
  const PredictedStep one = predict_step(network, workload(), options);
  EXPECT_LT(last.step_seconds, each.step_seconds);
  EXPECT_NEAR(each.breakdown.comm / one.breakdown.comm, 4, 0.1);
  EXPECT_NEAR(each.step_seconds / one.step_seconds, 4, 0.1);
}

TEST(Step, ZeroMaySendBehindItsPasses) {
  expect_sent_behind_its_passes("dgx1-v100", Strategy::zero1);
}

PredictedStep predict_parts(std::size_t devices, std::size_t num_micro_batches,
                            const Workload& work) {
  const Topology topology = find_topology("dgx1-v100");
  Network network(topology);
  StepOptions options;
  options.strategy = Strategy::pipeline;
  options.num_devices = devices;
  options.num_micro_batches = num_micro_batches;
  return predict_step(network, work, options);
}

TEST(Step, AnEvenPipelineTakesItsBubbleLonger) {
  Workload work = workload();
  work.optimizer_seconds = 0;
  const std::size_t n = 4, m = 8;
  const PredictedStep step = predict_parts(n, m, work);
  const double part = 60e-3 / n;
  // Backward passes but the first micro-batch's add to the gradients of five layers.
  const double again = 5 * traffic_seconds(find_topology("dgx1-v100").device, 30e6);
  // Six hops of nothing but latency; a forward and a backward pass each begin with n - 1 parts.
  const double expected =
      static_cast<double>(m + n - 1) * part + static_cast<double>(m + n - 2) * again;
  EXPECT_NEAR(step.step_seconds, expected, 50e-6);
  EXPECT_NEAR(step.busy_fraction,
              (static_cast<double>(m) * part + static_cast<double>(m - 1) * again) / expected,
              1e-3);
  EXPECT_NEAR(step.breakdown.wait + step.breakdown.forward + step.breakdown.backward,
              step.step_seconds, 1e-9);
}

TEST(Step, APipelinePaysForItsSlowestPart) {
  Workload work = workload();
  const double even = predict_parts(4, 8, work).step_seconds;
  for (LayerWork& layer : work.layers) layer.output_bytes = 50e6;
  const PredictedStep heavy = predict_parts(4, 8, work);
  EXPECT_GT(heavy.step_seconds, even);
  EXPECT_EQ(heavy.comm_bytes_per_device, 8 * 100e6);  // a middle part sends to both sides
  work = workload();
  work.layers[3].backward_seconds = 60e-3;
  EXPECT_GT(predict_parts(4, 8, work).step_seconds, 8 * 61e-3);
  EXPECT_THROW(predict_parts(8, 8, Workload{{work.layers[0], work.layers[1]}}), Error);
}

TEST(Step, APipelinesScheduleDecidesItsBubble) {
  Workload work = workload();
  work.optimizer_seconds = 0;
  const Topology topology = find_topology("dgx1-v100");
  Network network(topology);
  StepOptions options;
  options.strategy = Strategy::pipeline;
  options.num_devices = 2;
  options.num_micro_batches = 4;
  const auto busy = [&] { return predict_step(network, work, options).busy_fraction; };
  EXPECT_NEAR(busy(), 4.0 / 5, 1e-3);
  options.schedule = plan::PipelineSchedule::one_forward_one_backward;
  EXPECT_NEAR(busy(), 4.0 / 5, 1e-3);
  options.schedule = plan::PipelineSchedule::interleaved;
  options.num_chunks = 2;
  EXPECT_NEAR(busy(), 8.0 / 9, 2e-3);
  options.parts = {0, 1, 2, 3, work.layers.size()};  // the last part has most of the layers
  EXPECT_LT(busy(), 0.8);
}

}  // namespace
}  // namespace lockstep::predict
