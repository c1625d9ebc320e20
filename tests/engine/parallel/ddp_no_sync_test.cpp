#include <gtest/gtest.h>

#include "engine/autograd/ops/ops.h"
#include "engine/nn/layers.h"
#include "engine/parallel/ddp/ddp.h"
#include "tests/engine/parallel/function_module.h"
#include "tests/support/expect_close.h"
#include "tests/support/expect_error.h"
#include "tests/support/run_ranks.h"

namespace lockstep::testing {
namespace {

using parallel::Ddp;

Variable rows_of(int rank, std::size_t rows) {
  return Variable(random_tensor({rows, 3}, static_cast<std::uint64_t>(rank)));
}

// Ranks have 1, 2 and 3 rows in two passes that stay local, then 5 each: the mean of 7, 9 and 11.
void accumulate_then_reduce(comm::Communicator& communicator, bool is_training) {
  const auto linear = make_linear(3, 2, 1);
  Ddp ddp(linear, communicator);
  if (!is_training) ddp.eval();
  const std::size_t rows = 1 + static_cast<std::size_t>(communicator.rank());
  for (int round = 0; round < 3; ++round) {
    linear->zero_grad();
    {
      const auto no_sync = ddp.no_sync();
      for (std::size_t pass = 1; pass <= 2; ++pass) {
        sum(ddp(rows_of(communicator.rank(), rows))).backward();
        expect_close(linear->bias().grad(),
                     std::vector<double>(2, static_cast<double>(pass * rows)), kFloat64);
      }
    }
    const auto reduces = ddp.no_sync(false);
    sum(ddp(rows_of(communicator.rank(), 5))).backward();
    expect_close(linear->bias().grad(), {9, 9}, kFloat64);
  }
  EXPECT_EQ(ddp.reducer().num_all_reduces(), 3u);
}

TEST(NoSync, GradientsAddUpLocallyUntilTheNextReduction) {
  for (const bool is_training : {true, false}) {
    run_ranks(3, [&](comm::Communicator& communicator) {
      accumulate_then_reduce(communicator, is_training);
    });
  }
}

TEST(NoSync, BackwardAloneInsideIsAnError) {
  run_ranks(2, [](comm::Communicator& communicator) {
    const auto linear = make_linear(3, 2, 1);
    Ddp ddp(linear, communicator);
    const Variable loss = sum(ddp(rows_of(communicator.rank(), 4)));
    {
      const auto no_sync = ddp.no_sync();
      expect_error(ErrorCode::State, "the forward pass ran outside no_sync",
                   [&] { loss.backward(); });
    }
    // The ranks are not out of step after it.
    linear->zero_grad();
    sum(ddp(rows_of(communicator.rank(), 4))).backward();
    expect_close(linear->bias().grad(), {4, 4}, kFloat64);
  });
}

TEST(NoSync, ForwardAloneInsideDecides) {
  run_ranks(2, [](comm::Communicator& communicator) {
    const auto linear = make_linear(3, 2, 1);
    Ddp ddp(linear, communicator);
    const std::size_t rows = 1 + static_cast<std::size_t>(communicator.rank());
    Variable loss;
    {
      const auto no_sync = ddp.no_sync();
      loss = sum(ddp(rows_of(communicator.rank(), rows)));
    }
    loss.backward();
    expect_close(linear->bias().grad(), std::vector<double>(2, static_cast<double>(rows)),
                 kFloat64);
    EXPECT_EQ(ddp.reducer().num_all_reduces(), 0u);
  });
}

TEST(NoSync, BuffersAreNotBroadcastInside) {
  run_ranks(2, [](comm::Communicator& communicator) {
    const auto norm = std::make_shared<nn::BatchNorm1d>(3);
    Ddp ddp(norm, communicator);
    const auto no_sync = ddp.no_sync();
    // Were there a collective in it, rank 0 would wait for rank 1.
    if (communicator.rank() == 0) {
      sum(ddp(Variable(random_tensor({4, 3}, 1, DType::float32)))).backward();
    }
  });
}

}  // namespace
}  // namespace lockstep::testing
