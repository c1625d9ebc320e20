#include <gmock/gmock.h>

#include <latch>

#include "engine/trace/counters.h"
#include "engine/trace/recorder.h"
#include "tests/engine/comm/comm_test_data.h"
#include "tests/support/expect_error.h"
#include "tests/support/run_ranks.h"

namespace lockstep::comm {
namespace {

using ::lockstep::testing::expect_error;
using ::lockstep::testing::run_ranks;

CollectiveOptions async_sum() {
  CollectiveOptions options;
  options.launch = Launch::async;
  return options;
}

TEST(AsyncCollectives, RunInCallOrderAlsoBetweenBlockingOnes) {
  run_ranks(3, [](Communicator& communicator) {
    const Tensor value = Tensor::full({10}, 1, DType::int64);
    double expected = 1;
    for (int round = 0; round < 5; ++round) {
      communicator.all_reduce(value, async_sum());                    // x 3
      const Work last = communicator.all_reduce(value, async_sum());  // x 3
      communicator.all_reduce(value);                                 // x 3
      expected *= 27;
      EXPECT_EQ(value.to_vector<double>(), std::vector<double>(10, expected));
      EXPECT_TRUE(last.is_done());
    }
  });
}

TEST(AsyncCollectives, EveryOperationCanBeAsynchronous) {
  run_ranks(2, [](Communicator& communicator) {
    const int rank = communicator.rank();
    const Tensor one = Tensor::full({1}, rank + 1, DType::int32);
    const Tensor both = Tensor::zeros({2}, DType::int32);
    const Tensor part = Tensor::zeros({1}, DType::int32);
    const Tensor received = Tensor::zeros({2}, DType::int32);
    // Each is waited for: on a GPU that is what orders its results before what reads them.
    const std::vector<Work> works{communicator.all_gather(one, both, Launch::async),
                                  communicator.reduce_scatter(both, part, async_sum()),
                                  communicator.send(both, 1 - rank, Launch::async),
                                  communicator.recv(received, 1 - rank, Launch::async),
                                  communicator.broadcast(one, 1, Launch::async),
                                  communicator.barrier(Launch::async)};
    for (const Work& work : works) work.wait();
    EXPECT_EQ(both.to_vector<int>(), (std::vector<int>{1, 2}));
    EXPECT_EQ(part.item(), rank == 0 ? 2 : 4);
    EXPECT_EQ(received.to_vector<int>(), (std::vector<int>{1, 2}));
    EXPECT_EQ(one.item(), 2);
  });
}

TEST(AsyncCollectives, AnErrorComesOutOfEveryWait) {
  const auto errors = ::lockstep::testing::errors_of_ranks(2, [](Communicator& communicator) {
    const auto length = static_cast<std::size_t>(communicator.rank() + 1);
    const Work work = communicator.all_reduce(Tensor::zeros({length}), async_sum());
    EXPECT_THROW(work.wait(), Error);
    work.wait();
  });
  expect_errors(errors, ErrorCode::Comm,
                "rank 1 called all_reduce #0 of 2 float32 (sum) while rank 0 called all_reduce #0 "
                "of 1 float32 (sum)");
}

TEST(AsyncCollectives, LeaveSpansWithSequenceNumberAndBytesOnTheCommLane) {
  trace::start();
  run_ranks(2, [](Communicator& communicator) {
    const Tensor value = Tensor::zeros({100});
    communicator.barrier();
    communicator.all_reduce(value, async_sum()).wait();
    communicator.all_reduce(value);
  });
  trace::stop();
  const trace::Recording recording = trace::collect();
  for (const int rank : {0, 1}) {
    std::vector<std::int64_t> sequences;
    for (const trace::Span& span : recording.spans) {
      if (span.rank != rank || std::string_view(span.name) != "all_reduce") continue;
      EXPECT_EQ(span.lane, trace::Lane::comm);
      EXPECT_EQ(span.category, trace::Category::communication);
      EXPECT_EQ(span.num_bytes, 400u);
      sequences.push_back(span.sequence);
    }
    EXPECT_THAT(sequences, ::testing::ElementsAre(1, 2));
  }
}

TEST(Counters, TheRingSendsTwoTimesNMinusOneNthsOfTheBufferFromEveryRank) {
  for (const int world_size : {2, 3, 8}) {
    trace::reset_collective_counts();
    const std::size_t num_elements = 48;
    run_ranks(world_size, [&](Communicator& communicator) {
      CollectiveOptions options;
      options.plan = plan::AllReducePlan::ring;
      communicator.all_reduce(Tensor::zeros({num_elements}, DType::float64), options);
    });
    const auto n = static_cast<std::size_t>(world_size);
    for (int rank = 0; rank < world_size; ++rank) {
      EXPECT_EQ(trace::collective_bytes_of(rank), num_elements * 8 * 2 * (n - 1) / n);
    }
  }
}

}  // namespace
}  // namespace lockstep::comm
