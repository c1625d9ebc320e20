// Ranks that fail or disagree: a clear error on every rank, never a hang.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "engine/autograd/ops/ops.h"
#include "engine/parallel/ddp/ddp.h"
#include "tests/engine/parallel/function_module.h"
#include "tests/support/devices.h"
#include "tests/support/expect_close.h"
#include "tests/support/expect_error.h"
#include "tests/support/run_ranks.h"

namespace lockstep::testing {
namespace {

using parallel::Ddp;
using parallel::DdpOptions;
using ::testing::AllOf;
using ::testing::HasSubstr;

Variable make_input(std::uint64_t seed = 1) {
  return Variable(random_tensor({4, 3}, seed));
}

// Child 1 takes part where `uses_all(rank)` says so.
std::shared_ptr<nn::Module> make_branching(int rank, const std::function<bool(int)>& uses_all) {
  const bool all = uses_all(rank);
  return make_function_module({make_linear(3, 3, 1), make_linear(3, 3, 2), make_linear(3, 3, 3)},
                              [all](nn::Module& self, const Variable& x) {
                                const Variable y = call_child(self, 0, x);
                                return call_child(self, 2, all ? call_child(self, 1, y) : y);
                              });
}

TEST(DdpFailure, AMissingGradientFailsOnAllRanks) {
  for (const std::size_t limit : {std::size_t{1}, std::size_t{1} << 20}) {
    DdpOptions options;
    options.reducer.bucket_byte_limits = {limit};
    const auto errors = errors_of_ranks(3, [&](comm::Communicator& communicator) {
      Ddp ddp(make_branching(communicator.rank(), [](int rank) { return rank != 1; }), communicator,
              options);
      sum(ddp(make_input())).backward();
    });
    ASSERT_TRUE(errors[1]);
    EXPECT_THAT(errors[1]->what(), AllOf(HasSubstr("rank 1"), HasSubstr("1.weight, 1.bias")));
    for (const std::size_t rank : {0, 2}) {
      ASSERT_TRUE(errors[rank]) << "rank " << rank << " must not go on alone";
      EXPECT_THAT(errors[rank]->what(), HasSubstr("rank 1"));
    }
  }
}

void expect_rank_error(const std::string& rank, const std::string& words,
                       const std::function<void(comm::Communicator&)>& train) {
  try {
    run_ranks(3, [&](comm::Communicator& communicator) {
      train(communicator);
      ADD_FAILURE() << "rank " << communicator.rank() << " went on alone";
    });
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("[" + rank + "]"), HasSubstr(words)));
  }
}

TEST(DdpFailure, ARankThatThrowsAbortsTheOthers) {
  expect_rank_error("rank 2", "the disk is full", [](comm::Communicator& communicator) {
    const auto module = make_function_module(
        {make_linear(3, 3, 1)},
        [rank = communicator.rank(), step = 0](nn::Module& self, const Variable& x) mutable {
          if (++step == 3 && rank == 2) throw std::runtime_error("the disk is full");
          return call_child(self, 0, x);
        });
    Ddp ddp(module, communicator);
    for (int step = 0; step < 10; ++step) {
      module->zero_grad();
      sum(ddp(make_input())).backward();
    }
  });
  expect_rank_error("rank 1", "a bad hook", [](comm::Communicator& communicator) {
    const auto linear = make_linear(3, 3, 1);
    Ddp ddp(linear, communicator);
    Variable weight = linear->weight();
    if (communicator.rank() == 1) {
      weight.on_grad_ready([](const Variable&) { throw std::runtime_error("a bad hook"); });
    }
    sum(ddp(make_input())).backward();
    communicator.barrier().wait();
  });
}

TEST(DdpFailure, AModuleThatMovedAfterWrappingIsRefused) {
  run_ranks(2, [](comm::Communicator& communicator) {
    const auto linear = make_linear(3, 3, 1);
    Ddp ddp(linear, communicator);
    const Device other = test_device(4 + communicator.rank());
    ddp.to(other);
    expect_error(ErrorCode::Device, "wrap it again", [&] {
      ddp(Variable(random_tensor({4, 3}, 1, DType::float64, other)));
    });
  });
}

TEST(DdpFailure, TrainingGoesOnAfterAMissingGradient) {
  run_ranks(2, [](comm::Communicator& communicator) {
    const auto uses_all = std::make_shared<bool>(true);
    const auto module =
        make_function_module({make_linear(400, 400, 1), make_linear(400, 400, 2)},
                             [uses_all](nn::Module& self, const Variable& x) {
                               return call_child(self, 1, *uses_all ? call_child(self, 0, x) : x);
                             });
    DdpOptions options;
    options.reducer.bucket_byte_limits = {1};  // those of child 1 are under way when it fails
    Ddp ddp(module, communicator, options);
    const Variable x(random_tensor({4, 400}, 1));
    for (int step = 0; step < 6; ++step) {
      module->zero_grad();
      *uses_all = step % 2 == 0;  // on both ranks
      const Variable loss = sum(ddp(x));
      if (*uses_all) {
        loss.backward();
        expect_close(module->parameters()[3].grad(), std::vector<double>(400, 4.0), kFloat64);
      } else {
        expect_error(ErrorCode::State, "0.weight, 0.bias", [&] { loss.backward(); });
      }
    }
  });
}

}  // namespace
}  // namespace lockstep::testing
