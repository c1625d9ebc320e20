// Collectives that one thread enqueues for all ranks.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "engine/comm/single_thread_group/single_thread_group.h"
#include "tests/engine/comm/comm_test_data.h"
#include "tests/support/expect_error.h"
#include "tests/support/run_ranks.h"

namespace lockstep::comm {
namespace {

using ::lockstep::testing::expect_error;
using ::lockstep::testing::run_ranks;
using ::lockstep::testing::test_device;

std::vector<Device> test_devices(int count) {
  std::vector<Device> devices;
  for (int rank = 0; rank < count; ++rank) devices.push_back(test_device(rank));
  return devices;
}

std::vector<Tensor> tensors_of(const plan::RankBuffers& values) {
  std::vector<Tensor> tensors;
  for (const std::vector<double>& of_rank : values) {
    tensors.push_back(tensor_of(of_rank, static_cast<int>(tensors.size())));
  }
  return tensors;
}

// The results of ranks that are threads.
plan::RankBuffers reduced_by_threads(const plan::RankBuffers& inputs,
                                     const CollectiveOptions& options) {
  plan::RankBuffers results(inputs.size());
  run_ranks(static_cast<int>(inputs.size()), [&](Communicator& communicator) {
    const auto rank = static_cast<std::size_t>(communicator.rank());
    const Tensor buffer = tensor_of(inputs[rank], communicator.rank());
    communicator.all_reduce(buffer, options).wait();
    results[rank] = buffer.to_vector<double>();
  });
  return results;
}

class SingleThreadGroupOf : public ::testing::TestWithParam<int> {};

TEST_P(SingleThreadGroupOf, AllReduceHasTheBitsOfThreadRanksForEveryPlanLengthAndLaunch) {
  SingleThreadGroup group(test_devices(GetParam()));
  for (const std::size_t num_elements : {std::size_t{0}, std::size_t{1}, std::size_t{101}}) {
    const plan::RankBuffers inputs = rounding_buffers(GetParam(), num_elements);
    for (const plan::AllReducePlan plan : kPlans) {
      for (const ReduceOp op : {ReduceOp::sum, ReduceOp::average, ReduceOp::max}) {
        CollectiveOptions options;
        options.plan = plan;
        options.op = op;
        const plan::RankBuffers expected = reduced_by_threads(inputs, options);
        for (const Launch launch : {Launch::blocking, Launch::async}) {
          const std::vector<Tensor> buffers = tensors_of(inputs);
          options.launch = launch;
          group.all_reduce(buffers, options).wait();
          for (std::size_t rank = 0; rank < buffers.size(); ++rank) {
            EXPECT_EQ(buffers[rank].to_vector<double>(), expected[rank]) << fmt::format(
                "{}, {} elements, rank {}", plan::to_string(plan), num_elements, rank);
          }
        }
      }
    }
  }
}

TEST_P(SingleThreadGroupOf, BroadcastGivesEveryRankTheBufferOfTheRoot) {
  SingleThreadGroup group(test_devices(GetParam()));
  const plan::RankBuffers inputs = rounding_buffers(GetParam(), 33);
  for (int root = 0; root < GetParam(); ++root) {
    const std::vector<Tensor> buffers = tensors_of(inputs);
    group.broadcast(buffers, root, Launch::async).wait();
    for (const Tensor& buffer : buffers) {
      EXPECT_EQ(buffer.to_vector<double>(), inputs[static_cast<std::size_t>(root)]);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(WorldSizes, SingleThreadGroupOf, ::testing::Values(1, 2, 3, 4, 8));

TEST(SingleThreadGroupCalls, RunInCallOrderAlsoBetweenBlockingAndAsynchronousOnes) {
  SingleThreadGroup group(test_devices(3));
  std::vector<Tensor> values;
  for (int rank = 0; rank < 3; ++rank) {
    values.push_back(Tensor::full({1000}, 1, DType::int64, test_device(rank)));
  }
  CollectiveOptions async;
  async.launch = Launch::async;
  double expected = 1;
  for (int round = 0; round < 5; ++round) {
    group.all_reduce(values, async);
    group.all_reduce(values, async);
    group.all_reduce(values);
    expected *= 27;
    for (const Tensor& value : values) {
      EXPECT_THAT(value.to_vector<double>(), ::testing::Each(expected));
    }
  }
}

TEST(SingleThreadGroupCalls, StartWhereTheirEventsSay) {
  SingleThreadGroup group(test_devices(2));
  std::vector<Tensor> values;
  std::vector<std::shared_ptr<runtime::Event>> start;
  for (int rank = 0; rank < 2; ++rank) {
    values.push_back(Tensor::full({4}, rank + 1, DType::float32, test_device(rank)));
    start.push_back(values.back().stream().record());
  }
  CollectiveOptions async;
  async.launch = Launch::async;
  group.all_reduce(values, async, start).wait();
  for (const Tensor& value : values) {
    EXPECT_THAT(value.to_vector<float>(), ::testing::Each(3.0f));
  }
}

TEST(SingleThreadGroupCalls, RefuseElementsThatCannotBeReduced) {
  SingleThreadGroup group(test_devices(2));
  expect_error(ErrorCode::DType, "uint8", [&] {
    group.all_reduce(std::vector<Tensor>{Tensor::zeros({4}, DType::uint8, test_device(0)),
                                         Tensor::zeros({4}, DType::uint8, test_device(1))});
  });
  expect_error(ErrorCode::Usage, "at least one device", [] { SingleThreadGroup none({}); });
}

}  // namespace
}  // namespace lockstep::comm
