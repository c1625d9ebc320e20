// Ranks over TCP that differ, are late, leave, or are told to stop.
#include <gmock/gmock.h>

#include <atomic>

#include "tests/engine/comm/abort_in_transfers.h"
#include "tests/engine/comm/comm_test_data.h"
#include "tests/engine/comm/tcp_ranks.h"
#include "tests/support/expect_error.h"

namespace lockstep::comm {
namespace {

using ::lockstep::testing::expect_error;
using ::testing::HasSubstr;

TEST(TcpMismatch, OfASendAndItsReceiveFailsBoth) {
  const Errors errors = errors_of_tcp_ranks(2, [](Communicator& communicator) {
    if (communicator.rank() == 0) communicator.send(Tensor::zeros({4}), 1);
    if (communicator.rank() == 1) communicator.recv(Tensor::zeros({5}), 0);
    communicator.barrier();
  });
  expect_all(errors, ErrorCode::Comm,
             "rank 1 called recv #0 of 5 float32 while rank 0 called send");
}

TEST(TcpTimeout, OfAPeerThatCalledButDoesNotGoOnNamesIt) {
  MemoryStore store;
  std::atomic<bool> is_over{false};
  std::thread stopped([&] {
    TcpTransport transport(tcp_options(1, 2), store);
    CallHeader call;
    call.operation = Operation::all_reduce;
    call.num_elements = 64;
    call.plan = plan::AllReducePlan::ring;
    transport.announce(call, 60);
    while (!is_over) std::this_thread::yield();
  });
  {
    PlanCommunicator communicator(std::make_unique<TcpTransport>(tcp_options(0, 2), store));
    communicator.set_timeout_seconds(0.1);
    CollectiveOptions options;
    options.plan = plan::AllReducePlan::ring;
    expect_error(ErrorCode::Timeout, "for rank 1, which has called it too but does not go on",
                 [&] { communicator.all_reduce(Tensor::zeros({64}), options); });
  }
  is_over = true;
  stopped.join();
}

TEST(TcpLeaving, ARankThatLeavesIsNamedByThoseThatNeedIt) {
  const Errors errors = errors_of_tcp_ranks(3, [](Communicator& communicator) {
    communicator.barrier();
    if (communicator.rank() == 1) return;
    communicator.barrier();
  });
  EXPECT_FALSE(errors[1]);
  for (const int rank : {0, 2}) {
    const auto& error = errors[static_cast<std::size_t>(rank)];
    ASSERT_TRUE(error);
    EXPECT_THAT(error->what(), HasSubstr("rank 1 left the group while rank"));
    EXPECT_THAT(error->what(), HasSubstr("waits for it in barrier #1"));
  }
}

TEST(TcpAbort, EndsEveryRankWithTheSameWords) {
  for (const plan::AllReducePlan plan : kPlans) {
    const Errors errors = errors_of_tcp_ranks(3, [&](Communicator& communicator) {
      all_reduce_until_rank_0_aborts(communicator, plan, 200'000, 10);
    });
    expect_all(errors, ErrorCode::Comm, "[abort] rank 0 aborted the group: enough");
  }
}

TEST(TcpAbort, ReachesARankThatIsNotWaiting) {
  std::atomic<bool> is_sending{false};
  std::atomic<bool> has_heard{false};
  const Errors errors = errors_of_tcp_ranks(2, [&](Communicator& communicator) {
    communicator.barrier();
    if (communicator.rank() == 0) {
      while (!is_sending) std::this_thread::yield();  // else rank 1 may hear it in the barrier
      communicator.abort("the loss is not finite");
      while (!has_heard) std::this_thread::yield();
      return;
    }
    is_sending = true;
    // Sends only: what says that the group has failed is its own thread.
    try {
      while (true) {
        communicator.send(Tensor::zeros({0}), 0);
        std::this_thread::yield();
      }
    } catch (const Error&) {
      has_heard = true;
      throw;
    }
  });
  ASSERT_TRUE(errors[1]);
  EXPECT_THAT(errors[1]->what(), HasSubstr("rank 0 aborted the group: the loss is not finite"));
}

}  // namespace
}  // namespace lockstep::comm
