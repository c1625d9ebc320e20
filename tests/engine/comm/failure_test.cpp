#include <gmock/gmock.h>

#include <atomic>
#include <latch>

#include "engine/runtime/threads.h"
#include "tests/engine/comm/comm_test_data.h"
#include "tests/support/expect_error.h"
#include "tests/support/run_ranks.h"

namespace lockstep::comm {
namespace {

using ::lockstep::testing::errors_of_ranks;
using ::lockstep::testing::expect_error;
using ::testing::HasSubstr;

using Call = std::function<void(Communicator&)>;

// Every rank calls a barrier first, so that the call in question has number 1.
void expect_mismatch(const Call& call_of_others, const Call& call_of_rank_1,
                     const std::string& words) {
  const auto errors = errors_of_ranks(3, [&](Communicator& communicator) {
    communicator.barrier();
    (communicator.rank() == 1 ? call_of_rank_1 : call_of_others)(communicator);
  });
  expect_errors(errors, ErrorCode::Comm, words);
}

Call all_reduce_of(std::size_t num_elements, DType dtype = DType::float32,
                   ReduceOp op = ReduceOp::sum,
                   plan::AllReducePlan plan = plan::AllReducePlan::automatic) {
  return [=](Communicator& communicator) {
    CollectiveOptions options;
    options.op = op;
    options.plan = plan;
    const Tensor buffer = Tensor::full({num_elements}, 1, dtype);
    try {
      communicator.all_reduce(buffer, options);
    } catch (const Error&) {
      EXPECT_EQ(buffer.to_vector<float>(), std::vector<float>(num_elements, 1)) << "data moved";
      throw;
    }
  };
}

TEST(Mismatch, WhatARankCalledOtherwiseIsNamedOnEveryRank) {
  const std::string sum_of_8 = "while rank 0 called all_reduce #1 of 8 float32 (sum)";
  expect_mismatch(all_reduce_of(8), all_reduce_of(9),
                  "rank 1 called all_reduce #1 of 9 float32 (sum) " + sum_of_8);
  expect_mismatch(all_reduce_of(8), all_reduce_of(8, DType::float64),
                  "rank 1 called all_reduce #1 of 8 float64 (sum) " + sum_of_8);
  expect_mismatch(all_reduce_of(8), all_reduce_of(8, DType::float32, ReduceOp::max),
                  "rank 1 called all_reduce #1 of 8 float32 (max) " + sum_of_8);
  expect_mismatch(all_reduce_of(8, DType::float32, ReduceOp::sum, plan::AllReducePlan::tree),
                  all_reduce_of(8, DType::float32, ReduceOp::sum, plan::AllReducePlan::ring),
                  "rank 1 called all_reduce #1 of 8 float32 (sum) by the ring plan " + sum_of_8 +
                      " by the tree plan");
  expect_mismatch([](Communicator& c) { c.broadcast(Tensor::zeros({3}), 0); },
                  [](Communicator& c) { c.broadcast(Tensor::zeros({3}), 1); },
                  "rank 1 called broadcast #1 of 3 float32 from rank 1 while rank 0 called "
                  "broadcast #1 of 3 float32 from rank 0");
}

TEST(Timeouts, NameTheMissingRankItsLastCallAndTheCollectiveThatWaits) {
  std::latch have_failed(3);
  const auto errors = errors_of_ranks(4, [&](Communicator& communicator) {
    communicator.barrier();
    if (communicator.rank() == 2) return have_failed.wait();
    communicator.set_timeout_seconds(0.1);
    try {
      all_reduce_of(100)(communicator);
    } catch (const Error&) {
      have_failed.count_down();
      throw;
    }
  });
  expect_errors({errors[0], errors[1], errors[3]}, ErrorCode::Timeout,
                "waited 0.1 s in all_reduce #1 of 100 float32 (sum): rank 2 is missing (its last "
                "call: barrier #0)");
  EXPECT_FALSE(errors[2]);
}

TEST(Timeouts, AMessageThatWasNotSentIsNamed) {
  std::latch has_failed(1);
  const auto errors = errors_of_ranks(2, [&](Communicator& communicator) {
    if (communicator.rank() == 0) return has_failed.wait();
    communicator.set_timeout_seconds(0.05);
    try {
      communicator.recv(Tensor::zeros({5}), 0);
    } catch (const Error&) {
      has_failed.count_down();
      throw;
    }
  });
  expect_errors({errors[1]}, ErrorCode::Timeout,
                "rank 1 waited 0.05 s in recv #0 of 5 float32 for a message that rank 0 has not "
                "sent");
}

TEST(Freed, MemoryOfATensorThatACollectiveUsesIsAnErrorThatNamesTheRank) {
  std::latch is_freed(1);
  const auto errors = errors_of_ranks(2, [&](Communicator& communicator) {
    const Tensor buffer = Tensor::zeros({100'000});
    CollectiveOptions options;
    options.launch = Launch::async;
    if (communicator.rank() == 0) is_freed.wait();
    const Work work = communicator.all_reduce(buffer, options);
    if (communicator.rank() == 1) {
      buffer.storage()->free_memory();
      is_freed.count_down();
    }
    work.wait();
  });
  expect_errors({errors[0]}, ErrorCode::State,
                "rank 1 failed in all_reduce #0 of 100000 float32 (sum): [storage] this tensor's "
                "memory is freed");
  expect_errors({errors[1]}, ErrorCode::State, "this tensor's memory is freed");
}

TEST(Leaving, ARankThatLeavesFailsThoseThatNeedIt) {
  const auto errors = errors_of_ranks(3, [](Communicator& communicator) {
    communicator.barrier();
    if (communicator.rank() != 1) communicator.barrier();
  });
  EXPECT_FALSE(errors[1]);
  expect_errors({errors[0], errors[2]}, ErrorCode::Comm, "rank 1 left the group while rank");
}

TEST(Abort, EndsThePendingAndLaterCallsOfEveryRank) {
  const auto errors = errors_of_ranks(4, [](Communicator& communicator) {
    if (communicator.rank() == 3) communicator.abort("the loss is not finite");
    communicator.all_reduce(Tensor::zeros({1000}));
  });
  expect_errors(errors, ErrorCode::Comm, "rank 3 aborted the group: the loss is not finite");
}

TEST(Abort, MayComeFromAnyThreadInTheMiddleOfTransfers) {
  for (const plan::AllReducePlan plan : kPlans) {
    const auto errors = errors_of_ranks(3, [&](Communicator& communicator) {
      all_reduce_until_rank_0_aborts(communicator, plan, 20'000, 20);
    });
    expect_errors(errors, ErrorCode::Comm, "rank 0 aborted the group: enough");
  }
}

TEST(RunRanks, TheFirstErrorAbortsTheOthersAndIsRethrownWithItsRank) {
  std::atomic<int> num_aborted{0};
  expect_error(ErrorCode::Numeric, "[rank 2] [train] the loss is NaN", [&] {
    run_ranks(4, [&](Communicator& communicator) {
      if (communicator.rank() == 2) fail(ErrorCode::Numeric, "train", "the loss is NaN");
      try {
        communicator.barrier();
      } catch (const Error& error) {
        EXPECT_THAT(error.what(), HasSubstr("rank 2 aborted the group: [train] the loss is NaN"));
        ++num_aborted;
        throw;
      }
    });
  });
  EXPECT_EQ(num_aborted.load(), 3);
}

TEST(Arguments, AreCheckedBeforeAnybodyElseHearsOfTheCall) {
  ::lockstep::testing::run_ranks(2, [](Communicator& communicator) {
    const Tensor buffer = Tensor::zeros({4});
    CollectiveOptions average;
    average.op = ReduceOp::average;
    expect_error(ErrorCode::Usage, "[broadcast] the root must be a rank in 0 ... 1, found 2",
                 [&] { communicator.broadcast(buffer, 2); });
    expect_error(ErrorCode::Usage, "[all_reduce] needs a tensor",
                 [&] { communicator.all_reduce(Tensor()); });
    expect_error(ErrorCode::DType, "[all_reduce] cannot average int32",
                 [&] { communicator.all_reduce(Tensor::zeros({4}, DType::int32), average); });
    expect_error(ErrorCode::DType, "[all_reduce] takes floating-point numbers, int32 and int64",
                 [&] { communicator.all_reduce(Tensor::zeros({4}, DType::uint8)); });
    expect_error(ErrorCode::Shape, "[all_gather] the larger tensor must hold 2 times",
                 [&] { communicator.all_gather(buffer, Tensor::zeros({9})); });
    expect_error(ErrorCode::DType, "all_gather",
                 [&] { communicator.all_gather(buffer, Tensor::zeros({8}, DType::float64)); });
    expect_error(ErrorCode::Usage, "needs a time above 0",
                 [&] { communicator.set_timeout_seconds(0); });
    communicator.all_reduce(buffer);  // the group is whole
  });
  expect_error(ErrorCode::Usage, "at least one rank", [] { make_thread_group(0); });
}

}  // namespace
}  // namespace lockstep::comm
