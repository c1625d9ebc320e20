// All-reduce by kernels that meet by themselves, on 2, 3, 4 and 8 GPUs.
#include "engine/comm/transport/cuda_peer/flag_all_reduce.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cstdlib>
#include <latch>
#include <string_view>
#include <thread>

#include "engine/comm/grouped/grouped_communicator.h"
#include "engine/comm/transport/cuda_peer/cuda_peer.h"
#include "engine/runtime/cuda/cuda_stream.h"
#include "engine/runtime/physical_gpus.h"
#include "engine/runtime/step_graph.h"
#include "tests/engine/comm/comm_test_data.h"
#include "tests/support/expect_error.h"

namespace lockstep::comm::cuda_peer {
namespace {

using ::lockstep::testing::expect_error;
using plan::AllReducePlan;

constexpr std::array kFlagPlans{AllReducePlan::automatic, AllReducePlan::one_shot,
                                AllReducePlan::two_shot};

bool is_set_to(std::string_view word) {
  const char* text = std::getenv("LOCKSTEP_FLAG_ALL_REDUCE");
  return (text == nullptr ? "on" : text) == word;
}
// Then ranks may share a GPU.
bool is_forced() {
  return is_set_to("force");
}

Device gpu(std::size_t index) {
  return {DeviceType::cuda, static_cast<int>(index)};
}

std::vector<Device> gpus(std::size_t count) {
  std::vector<Device> devices;
  for (std::size_t rank = 0; rank < count; ++rank) devices.push_back(gpu(rank));
  return devices;
}

std::vector<runtime::Stream*> compute_streams(std::size_t count) {
  std::vector<runtime::Stream*> streams;
  for (const Device device : gpus(count)) {
    streams.push_back(&runtime::logical_device(device).compute_stream());
  }
  return streams;
}

std::vector<TensorView> views_of(const std::vector<Tensor>& tensors) {
  std::vector<TensorView> views;
  for (const Tensor& tensor : tensors) views.push_back(tensor.view());
  return views;
}

// All but the first `skipped` elements.
TensorView behind(const Tensor& tensor, std::size_t skipped) {
  return tensor.view().part(skipped, tensor.num_elements() - skipped);
}

std::vector<Tensor> filled(std::size_t count, std::size_t num_elements, double value) {
  std::vector<Tensor> tensors;
  for (const Device device : gpus(count)) {
    tensors.push_back(Tensor::full({num_elements}, value, DType::int64, device));
  }
  return tensors;
}

// What the kernel of the event-ordered all-reduce makes of the values.
std::vector<double> reduced_in_one_kernel(const plan::RankBuffers& inputs, DType dtype, ReduceOp op,
                                          double factor) {
  std::vector<Tensor> copies;
  std::vector<ConstTensorView> sources;
  for (const std::vector<double>& input : inputs) {
    copies.push_back(Tensor::from(input, {input.size()}, gpu(0)).to(dtype));
    sources.push_back(copies.back().view());
  }
  const Tensor result = Tensor::empty(copies[0].shape(), dtype, gpu(0));
  const TensorView output = result.view();
  reduce_to_all(result.stream(), op, factor, sources, std::span(&output, 1));
  return result.to_vector<double>();
}

class FlagAllReduceOn : public ::testing::TestWithParam<std::size_t> {
 protected:
  void SetUp() override {
    const std::size_t num_present =
        is_forced() ? static_cast<std::size_t>(runtime::num_devices(DeviceType::cuda))
                    : runtime::physical_gpus().size();
    if (num_present < num_ranks_) {
      GTEST_SKIP() << "needs " << num_ranks_ << " GPUs, found " << num_present;
    }
    if (!FlagAllReduce().serves(compute_streams(num_ranks_))) GTEST_SKIP() << "switched off";
  }

  void expect_bits(FlagAllReduce& flags, AllReducePlan plan, DType dtype, ReduceOp op,
                   std::size_t num_elements, std::size_t skipped) {
    SCOPED_TRACE(fmt::format("{}, {}, {} elements behind {}", plan::to_string(plan),
                             to_string(dtype), num_elements, skipped));
    plan::RankBuffers inputs =
        rounding_buffers(static_cast<int>(num_ranks_), num_elements + skipped);
    if (dtype == DType::float16) {
      for (auto& input : inputs) {
        for (double& value : input) value = value > 1e6 || value < -1e6 ? value * 1e-9 : value;
      }
    }
    const double factor = op == ReduceOp::average ? 1.0 / static_cast<double>(num_ranks_) : 1.0;
    const std::vector<double> expected = reduced_in_one_kernel(inputs, dtype, op, factor);
    std::vector<Tensor> tensors;
    std::vector<TensorView> buffers;
    for (std::size_t rank = 0; rank < num_ranks_; ++rank) {
      tensors.push_back(Tensor::from(inputs[rank], {inputs[rank].size()}, gpu(rank)).to(dtype));
      buffers.push_back(behind(tensors.back(), skipped));
    }
    flags.enqueue(plan, op, factor, compute_streams(num_ranks_), buffers);
    for (std::size_t rank = 0; rank < num_ranks_; ++rank) {
      const std::vector<double> all = tensors[rank].to_vector<double>();
      const std::vector<double> before = tensor_on_cpu(inputs[rank], dtype);
      for (std::size_t i = 0; i < all.size(); ++i) {
        ASSERT_EQ(all[i], i < skipped ? before[i] : expected[i]) << "rank " << rank << ", " << i;
      }
    }
  }

  const std::size_t num_ranks_ = GetParam();

 private:
  static std::vector<double> tensor_on_cpu(const std::vector<double>& values, DType dtype) {
    return Tensor::from(values, {values.size()}, gpu(0)).to(dtype).to_vector<double>();
  }
};

TEST_P(FlagAllReduceOn, EveryRankHasTheBitsOfTheEventOrderedOneForEveryTypeAndLength) {
  FlagAllReduce flags;
  for (const AllReducePlan plan : kFlagPlans) {
    for (const DType dtype : kReducibleTypes) {
      const bool is_whole = dtype == DType::int32 || dtype == DType::int64;
      for (const std::size_t num_elements : {1, 7, 64, 4099}) {
        expect_bits(flags, plan, dtype, is_whole ? ReduceOp::sum : ReduceOp::average, num_elements,
                    0);
      }
    }
    for (const ReduceOp op : {ReduceOp::product, ReduceOp::min, ReduceOp::max}) {
      expect_bits(flags, plan, DType::float32, op, 333, 0);
    }
  }
}

TEST_P(FlagAllReduceOn, BuffersMayBeginAnywhereAndWhatIsBesideThemStays) {
  FlagAllReduce flags;
  for (const AllReducePlan plan : kFlagPlans) {
    expect_bits(flags, plan, DType::float32, ReduceOp::sum, 5001, 1);
    expect_bits(flags, plan, DType::bfloat16, ReduceOp::sum, 77, 3);
  }
}

TEST_P(FlagAllReduceOn, ManyPiecesPerBlockAreAsGoodAsOne) {
  FlagAllReduce flags;
  for (const AllReducePlan plan : kFlagPlans) {
    expect_bits(flags, plan, DType::float32, ReduceOp::average, 300'007, 0);
  }
}

TEST_P(FlagAllReduceOn, CallsFollowEachOtherOnTheSameAndOnOtherBuffersWithoutTheHost) {
  FlagAllReduce flags;
  const std::vector<runtime::Stream*> streams = compute_streams(num_ranks_);
  const std::vector<std::size_t> lengths{3, 20'000, 1, 5000};
  std::vector<std::vector<Tensor>> buffers;
  for (const std::size_t length : lengths) buffers.push_back(filled(num_ranks_, length, 1));
  std::vector<std::int64_t> expected(lengths.size(), 1);
  for (std::size_t round = 0; round < 60; ++round) {
    const std::size_t which = (round / 2) % lengths.size();  // twice the same
    flags.enqueue(kFlagPlans[round % kFlagPlans.size()], ReduceOp::sum, 1, streams,
                  views_of(buffers[which]));
    expected[which] *= static_cast<std::int64_t>(num_ranks_);
  }
  for (std::size_t which = 0; which < lengths.size(); ++which) {
    for (const Tensor& tensor : buffers[which]) {
      EXPECT_THAT(tensor.to_vector<std::int64_t>(), ::testing::Each(expected[which]));
    }
  }
}

TEST_P(FlagAllReduceOn, CallsOnBothStreamsOfARankTakeTurns) {
  FlagAllReduce flags;
  const std::vector<Tensor> values = filled(num_ranks_, 9000, 1);
  std::int64_t expected = 1;
  for (int round = 0; round < 12; ++round) {
    std::vector<runtime::Stream*> streams;
    for (const Device device : gpus(num_ranks_)) {
      runtime::LogicalDevice& of = runtime::logical_device(device);
      streams.push_back(round % 2 == 0 ? &of.compute_stream() : &of.comm_stream());
    }
    if (round == 1) {
      for (const Tensor& value : values) value.storage()->record_use(*streams[0]);
    }
    flags.enqueue(kFlagPlans[static_cast<std::size_t>(round / 2) % kFlagPlans.size()],
                  ReduceOp::sum, 1, streams, views_of(values));
    expected *= static_cast<std::int64_t>(num_ranks_);
  }
  for (const Device device : gpus(num_ranks_)) {
    runtime::logical_device(device).comm_stream().synchronize();
  }
  for (const Tensor& value : values) {
    EXPECT_THAT(value.to_vector<std::int64_t>(), ::testing::Each(expected));
  }
}

TEST_P(FlagAllReduceOn, TwoGroupsOnTheSameGpusDoNotStopEachOther) {
  const auto work = [this](Launch launch, std::int64_t& result) {
    GroupedCommunicator group(gpus(num_ranks_));
    CollectiveOptions options;
    options.launch = launch;
    const std::vector<Tensor> values = filled(num_ranks_, 3000, 1);
    for (int round = 0; round < 15; ++round) {
      options.plan = kFlagPlans[static_cast<std::size_t>(round) % kFlagPlans.size()];
      group.all_reduce(values, options).wait();
    }
    result = values[num_ranks_ - 1].to_vector<std::int64_t>()[2999];
  };
  std::int64_t expected = 1;
  for (int round = 0; round < 15; ++round) expected *= static_cast<std::int64_t>(num_ranks_);
  std::array<std::int64_t, 3> results{};
  {
    std::jthread first(work, Launch::async, std::ref(results[0]));
    std::jthread second(work, Launch::async, std::ref(results[1]));
    std::jthread third(work, Launch::blocking, std::ref(results[2]));
  }
  EXPECT_THAT(results, ::testing::Each(expected));
}

TEST_P(FlagAllReduceOn, AGraphRepeatsItWithOneKernelPerRankAndCall) {
  GroupedCommunicator group(gpus(num_ranks_));
  const std::vector<Tensor> small = filled(num_ranks_, 100, 1);
  const std::vector<Tensor> large = filled(num_ranks_, 20'000, 1);
  runtime::StepGraph graph(gpus(num_ranks_));
  std::int64_t expected = 1;
  for (int round = 0; round < 40; ++round) {
    graph.run([&] {
      CollectiveOptions options;
      options.plan = AllReducePlan::one_shot;
      group.all_reduce(small, options);
      options.plan = AllReducePlan::two_shot;
      group.all_reduce(large, options);
    });
    expected *= static_cast<std::int64_t>(num_ranks_);
    if (round % 10 != 9) continue;
    // Outside of the graph, in between.
    group.all_reduce(small);
    group.all_reduce(large);
    expected *= static_cast<std::int64_t>(num_ranks_);
  }
  EXPECT_EQ(graph.num_nodes(), 2 * num_ranks_);
  for (std::size_t rank = 0; rank < num_ranks_; ++rank) {
    EXPECT_THAT(small[rank].to_vector<std::int64_t>(), ::testing::Each(expected));
    EXPECT_THAT(large[rank].to_vector<std::int64_t>(), ::testing::Each(expected));
  }
}

TEST_P(FlagAllReduceOn, ARankWhoseKernelStaysAwayIsNamedOnTheOthersAndTheGroupStaysBroken) {
  for (const AllReducePlan plan : {AllReducePlan::one_shot, AllReducePlan::two_shot}) {
    const std::size_t last = num_ranks_ - 1;
    const std::vector<runtime::Stream*> streams = compute_streams(num_ranks_);
    const std::vector<Tensor> values = filled(num_ranks_, 10, 1);
    FlagAllReduce flags(0.05);
    flags.enqueue(plan, ReduceOp::sum, 1, streams, views_of(values));
    for (runtime::Stream* stream : streams) stream->synchronize();

    std::latch others_gave_up(1);
    const runtime::cuda::CurrentGpu current(streams[last]->device().gpu());
    ASSERT_EQ(cudaLaunchHostFunc(
                  runtime::cuda::cuda_stream(*streams[last]).handle(),
                  [](void* latch) { static_cast<std::latch*>(latch)->wait(); }, &others_gave_up),
              cudaSuccess);
    flags.enqueue(plan, ReduceOp::sum, 1, streams, views_of(values));
    for (std::size_t rank = 0; rank < last; ++rank) {
      expect_error(ErrorCode::Timeout, fmt::format("of {} did not meet the others", num_ranks_),
                   [&] { streams[rank]->synchronize(); });
    }
    others_gave_up.count_down();
    expect_error(ErrorCode::Timeout, "LOCKSTEP_FLAG_ALL_REDUCE=off",
                 [&] { streams[last]->synchronize(); });

    flags.enqueue(plan, ReduceOp::sum, 1, streams, views_of(values));
    for (std::size_t rank = 0; rank < num_ranks_; ++rank) {
      expect_error(ErrorCode::Timeout, fmt::format("rank {} of {}", rank, num_ranks_),
                   [&] { streams[rank]->synchronize(); });
    }
    // A new one works, on the same devices.
    FlagAllReduce others;
    const std::vector<Tensor> fresh = filled(num_ranks_, 10, 1);
    others.enqueue(plan, ReduceOp::sum, 1, streams, views_of(fresh));
    for (const Tensor& value : fresh) {
      EXPECT_THAT(value.to_vector<double>(), ::testing::Each(static_cast<double>(num_ranks_)));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Gpus, FlagAllReduceOn, ::testing::Values(2, 3, 4, 8));

TEST(FlagAllReduceRule, ServesRanksOnDifferentGpusUnlessItIsOff) {
  if (runtime::physical_gpus().size() < 2) GTEST_SKIP() << "needs 2 GPUs";
  const std::vector<runtime::Stream*> streams = compute_streams(2);
  EXPECT_EQ(FlagAllReduce().serves(streams), is_set_to("on") || is_forced());
  runtime::Stream* const on_the_same_gpu = &streams[0]->device().comm_stream();
  EXPECT_FALSE(FlagAllReduce().serves(std::vector{streams[0], on_the_same_gpu}));
  EXPECT_FALSE(FlagAllReduce().serves(std::vector{streams[0]})) << "nobody to meet";
}

TEST(FlagAllReduceRule, ServesRanksThatShareAGpuOnlyIfItIsForced) {
  if (runtime::num_devices(DeviceType::cuda) < 2) GTEST_SKIP() << "needs 2 logical devices";
  const std::vector<runtime::Stream*> streams = compute_streams(2);
  if (streams[0]->device().gpu() != streams[1]->device().gpu()) {
    GTEST_SKIP() << "needs 2 logical devices on one GPU";
  }
  EXPECT_EQ(FlagAllReduce().serves(streams), is_forced());
}

}  // namespace
}  // namespace lockstep::comm::cuda_peer
