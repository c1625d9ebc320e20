// DDP's promises about parameters without gradients, ranks without rows, and hooks; the names are
// those of the list that PyTorch's own tests make.
#include <gtest/gtest.h>

#include <atomic>
#include <nlohmann/json.hpp>

#include "engine/autograd/ops/ops.h"
#include "engine/optim/optimizer.h"
#include "engine/parallel/ddp/compression.h"
#include "engine/parallel/ddp/join.h"
#include "engine/parallel/ddp/logging_data.h"
#include "tests/engine/parallel/function_module.h"
#include "tests/support/expect_close.h"
#include "tests/support/expect_error.h"
#include "tests/support/run_ranks.h"

namespace lockstep::testing {
namespace {

using parallel::Ddp;
using parallel::DdpOptions;
using parallel::Unused;

DdpOptions with(Unused unused) {
  DdpOptions options;
  options.unused = unused;
  return options;
}

Variable ones(std::size_t rows, DType dtype = DType::float64) {
  return Variable(Tensor::full({rows, 2}, 1, dtype, test_device()));
}

// Two layers 2 -> 1; `uses` says which of them the output is the sum of.
std::shared_ptr<nn::Module> make_branches(std::shared_ptr<std::vector<bool>> uses) {
  return make_function_module({make_linear(2, 1, 1), make_linear(2, 1, 2)},
                              [uses](nn::Module& self, const Variable& x) {
                                Variable y;
                                for (std::size_t i = 0; i < 2; ++i) {
                                  if (!(*uses)[i]) continue;
                                  const Variable branch = call_child(self, i, x);
                                  y = y.defined() ? add(y, branch) : branch;
                                }
                                return y;
                              });
}

Variable bias_of(const nn::Module& module, std::size_t branch) {
  return module.children()[branch].second->parameters()[1];
}

// Rank 0 uses both branches, rank 1 only the first: the second's gradient is half of rank 0's.
TEST(UnusedParameters, LocallyUnusedOnesGetTheAverage) {
  run_ranks(2, [](comm::Communicator& communicator) {
    const bool is_first = communicator.rank() == 0;
    const auto net =
        make_branches(std::make_shared<std::vector<bool>>(std::vector{true, is_first}));
    Ddp ddp(net, communicator, with(Unused::find));
    for (int step = 0; step < 3; ++step) {
      net->zero_grad();
      sum(ddp(ones(4))).backward();
      expect_close(bias_of(*net, 0).grad(), {4}, kFloat64);
      expect_close(bias_of(*net, 1).grad(), {2}, kFloat64);
    }
  });
}

TEST(UnusedParameters, GloballyUnusedOnesStayUntouched) {
  run_ranks(3, [](comm::Communicator& communicator) {
    const auto uses = std::make_shared<std::vector<bool>>(std::vector{true, true});
    const auto net = make_branches(uses);
    Ddp ddp(net, communicator, with(Unused::find));
    sum(ddp(ones(5))).backward();
    (*uses)[1] = false;
    net->children()[0].second->zero_grad();
    const double before = bias_of(*net, 1).grad().item();
    sum(ddp(ones(7))).backward();
    expect_close(bias_of(*net, 0).grad(), {7}, kFloat64);
    EXPECT_EQ(bias_of(*net, 1).grad().item(), before);
    net->zero_grad();
    sum(ddp(ones(7))).backward();
    EXPECT_FALSE(bias_of(*net, 1).grad().defined());
  });
}

// A parameter that a pass in no_sync used counts as used in the pass that synchronises.
TEST(UnusedParameters, OfAccumulatedPassesAreThoseThatNoPassUsed) {
  run_ranks(2, [](comm::Communicator& communicator) {
    const auto uses = std::make_shared<std::vector<bool>>(std::vector{true, true});
    const auto net = make_branches(uses);
    Ddp ddp(net, communicator, with(Unused::find));
    {
      const auto no_sync = ddp.no_sync();
      sum(ddp(ones(communicator.rank() == 0 ? 2 : 4))).backward();
    }
    (*uses)[1] = false;
    sum(ddp(ones(1))).backward();
    expect_close(bias_of(*net, 0).grad(), {4}, kFloat64);
    expect_close(bias_of(*net, 1).grad(), {3}, kFloat64);
  });
}

TEST(UnusedParameters, AreThoseThatNoneOfSeveralForwardPassesReaches) {
  run_ranks(2, [](comm::Communicator& communicator) {
    const auto uses = std::make_shared<std::vector<bool>>(std::vector{true, false});
    const auto net = make_branches(uses);
    Ddp ddp(net, communicator, with(Unused::find));
    const Variable first = sum(ddp(ones(2)));
    uses->assign({false, true});
    const Variable second = sum(ddp(ones(3)));
    add(first, second).backward();
    expect_close(bias_of(*net, 0).grad(), {2}, kFloat64);
    expect_close(bias_of(*net, 1).grad(), {3}, kFloat64);
  });
}

TEST(StaticGraph, TakesTheFirstStepsUnusedParametersForEveryStep) {
  run_ranks(2, [](comm::Communicator& communicator) {
    const auto uses =
        std::make_shared<std::vector<bool>>(std::vector{true, communicator.rank() == 0});
    const auto net = make_branches(uses);
    Ddp ddp(net, communicator, with(Unused::as_first));
    for (int step = 0; step < 3; ++step) {
      net->zero_grad();
      sum(ddp(ones(4))).backward();
      expect_close(bias_of(*net, 1).grad(), {2}, kFloat64);
    }
    EXPECT_TRUE(ddp.reducer().was_rebuilt());
  });
}

TEST(StaticGraph, AnotherUseThanInTheFirstStepIsAnError) {
  run_ranks(1, [](comm::Communicator& communicator) {
    const auto uses = std::make_shared<std::vector<bool>>(std::vector{true, false});
    Ddp ddp(make_branches(uses), communicator, with(Unused::as_first));
    sum(ddp(ones(1))).backward();
    uses->assign({true, true});
    const Variable loss = sum(ddp(ones(1)));
    expect_error(ErrorCode::State, "got a gradient in this step but not in the first",
                 [&] { loss.backward(); });
  });
}

TEST(WrappedModule, MayNotBeFrozenUnfrozenOrChanged) {
  run_ranks(1, [](comm::Communicator& communicator) {
    const auto net = make_function_module({make_linear(2, 2, 1), make_linear(2, 1, 2)},
                                          [](nn::Module& self, const Variable& x) {
                                            return call_child(self, 1, call_child(self, 0, x));
                                          });
    Variable frozen = bias_of(*net, 0);
    frozen.set_requires_grad(RequiresGrad::no);
    Ddp ddp(net, communicator);
    sum(ddp(ones(1))).backward();
    frozen.set_requires_grad(RequiresGrad::yes);
    expect_error(ErrorCode::State, "parameter 0.bias was unfrozen after the module was wrapped",
                 [&] { ddp(ones(1)); });
    frozen.set_requires_grad(RequiresGrad::no);
    Variable weight = net->parameters()[0];
    weight.set_requires_grad(RequiresGrad::no);
    expect_error(ErrorCode::State, "parameter 0.weight was frozen", [&] { ddp(ones(1)); });
    weight.set_requires_grad(RequiresGrad::yes);
    std::vector<Variable> parameters = net->parameters();
    parameters[2] = Variable(parameters[2].value().clone(), RequiresGrad::yes);
    net->set_parameters(parameters);
    expect_error(ErrorCode::State, "parameter 1.weight was replaced", [&] { ddp(ones(1)); });
  });
}

// Rank 0 has 3 batches, the others 5, and every gradient is 50.
void train_joined(comm::Communicator& communicator, parallel::JoinDivisor divisor) {
  const auto linear = make_linear(2, 1, 1);
  Ddp ddp(linear, communicator);
  const int num_ranks = communicator.world_size();
  int step = 0;
  parallel::join(
      ddp,
      [&] {
        for (; step < (communicator.rank() == 0 ? 3 : 5); ++step) {
          linear->zero_grad();
          sum(ddp(ones(50))).backward();
          const double active = step < 3 ? num_ranks : num_ranks - 1;
          const bool by_all = divisor == parallel::JoinDivisor::world_size;
          expect_close(linear->bias().grad(), {by_all ? 50 * active / num_ranks : 50}, kFloat64);
        }
      },
      divisor);
}

TEST(Join, DividesByTheInitialWorldSizeOrByTheActiveRanks) {
  for (const auto divisor :
       {parallel::JoinDivisor::world_size, parallel::JoinDivisor::active_ranks}) {
    run_ranks(3, [&](comm::Communicator& communicator) { train_joined(communicator, divisor); });
  }
}

// Unequal numbers of batches, one of them 0; unused parameters; gradients that add up: at the end
// all ranks have the same weights, and those of the rank that came last.
TEST(Join, EndsWithTheModelOfTheLastRank) {
  run_ranks(4, [](comm::Communicator& communicator) {
    const auto rank = static_cast<std::size_t>(communicator.rank());
    const auto net =
        make_branches(std::make_shared<std::vector<bool>>(std::vector{true, rank % 2 == 0}));
    Ddp ddp(net, communicator, with(Unused::find));
    optim::Sgd sgd(net->parameters(), {.learning_rate = 0.1});
    const std::size_t num_steps[] = {2, 0, 7, 4};
    parallel::join(ddp, [&] {
      for (std::size_t step = 0; step < num_steps[rank]; ++step) {
        sgd.zero_grad();
        sum(ddp(ones(1 + rank))).backward();
        sgd.step();
      }
    });
    for (const Variable& parameter : net->parameters()) {
      const Tensor last = parameter.value().clone();
      communicator.broadcast(last, 2);
      EXPECT_EQ(parameter.value().to_vector<double>(), last.to_vector<double>());
    }
  });
}

TEST(Join, WithoutItUnevenBatchesEndInAnErrorThatNamesTheRank) {
  run_ranks(2, [](comm::Communicator& communicator) {
    communicator.set_timeout_seconds(0.5);
    const auto linear = make_linear(2, 1, 1);
    Ddp ddp(linear, communicator, {.reducer = {.rebuild = parallel::Rebuild::never}});
    sum(ddp(ones(1))).backward();
    if (communicator.rank() == 0) return;
    const Variable loss = sum(ddp(ones(1)));
    expect_error(ErrorCode::Comm, "rank 0", [&] { loss.backward(); });
  });
}

// --- hooks

// A training step's gradients with a hook, of two layers, in float32.
std::vector<double> gradients_with(const std::shared_ptr<parallel::CommHook>& hook,
                                   comm::Communicator& communicator, int num_steps) {
  const auto net = std::make_shared<nn::Sequential>(std::vector<std::shared_ptr<nn::Module>>{
      make_linear(6, 40, 1, DType::float32), std::make_shared<nn::Tanh>(),
      make_linear(40, 30, 2, DType::float32)});
  DdpOptions options;
  options.reducer.bucket_byte_limits = {1024};
  Ddp ddp(net, communicator, options);
  if (hook) ddp.register_comm_hook(hook);
  for (int step = 0; step < num_steps; ++step) {
    net->zero_grad();
    const auto seed = static_cast<std::uint64_t>(communicator.rank() + 10 * step);
    mean(ddp(Variable(random_tensor({8, 6}, seed, DType::float32)))).backward();
  }
  std::vector<double> all;
  for (const Variable& parameter : net->parameters()) {
    const std::vector<double> values = parameter.grad().to_vector<double>();
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

double relative_distance(const std::vector<double>& a, const std::vector<double>& b) {
  double difference = 0;
  double size = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    size += b[i] * b[i];
  }
  return std::sqrt(difference / size);
}

TEST(CommHook, ThePlainOneHasTheBitsOfNone) {
  run_ranks(3, [](comm::Communicator& communicator) {
    EXPECT_EQ(gradients_with(parallel::all_reduce_hook(), communicator, 2),
              gradients_with(nullptr, communicator, 2));
  });
}

TEST(CommHook, CompressedOnesRoundToTheirType) {
  run_ranks(3, [](comm::Communicator& communicator) {
    const std::vector<double> plain = gradients_with(nullptr, communicator, 2);
    const auto distance = [&](DType dtype) {
      return relative_distance(gradients_with(parallel::compress_hook(dtype), communicator, 2),
                               plain);
    };
    EXPECT_LT(distance(DType::float16), 1e-3);
    EXPECT_GT(distance(DType::float16), 1e-5);
    EXPECT_LT(distance(DType::bfloat16), 1e-2);
    EXPECT_GT(distance(DType::bfloat16), 1e-3);
  });
  expect_error(ErrorCode::Usage, "float16 or bfloat16, not to float32",
               [] { parallel::compress_hook(DType::float32); });
}

TEST(CommHook, PowerSgdOfNearlyFullRankLosesLittle) {
  run_ranks(2, [](comm::Communicator& communicator) {
    const std::vector<double> plain = gradients_with(nullptr, communicator, 4);
    // For a mean over 8 rows and 2 ranks, the weights' gradients have at most 6 independent rows,
    // or 1; a matrix [40, 6] with rank 5 still travels as two smaller ones.
    const auto hook = parallel::power_sgd_hook({.rank = 5, .start_step = 2});
    EXPECT_LT(relative_distance(gradients_with(hook, communicator, 4), plain), 0.05);
  });
}

// Later steps make up for what one loses: over many steps of the same gradient the mean is right.
TEST(CommHook, PowerSgdMakesUpForItsErrors) {
  run_ranks(2, [](comm::Communicator& communicator) {
    const Tensor matrix = random_tensor({12, 10}, 1, DType::float32);
    const auto hook = parallel::power_sgd_hook({.rank = 1, .start_step = 2});
    std::vector<double> sum(120, 0.0);
    constexpr int kSteps = 200;
    for (int step = 0; step < kSteps + 2; ++step) {
      const Tensor memory = matrix.clone().reshape({120});
      const parallel::GradBucket bucket{0, memory, {memory.reshape({12, 10})}};
      hook->start(bucket, communicator, comm::Launch::blocking).wait();
      if (step < 2) continue;
      const std::vector<double> values = memory.to_vector<double>();
      for (std::size_t i = 0; i < 120; ++i) sum[i] += values[i] / kSteps;
    }
    EXPECT_LT(relative_distance(sum, matrix.to_vector<double>()), 0.1);
  });
}

class DoublingHook final : public parallel::CommHook {
 public:
  comm::Work start(const parallel::GradBucket& bucket, comm::Communicator& communicator,
                   comm::Launch launch) override {
    return communicator.all_reduce(bucket.memory,
                                   {.op = comm::ReduceOp::average, .launch = launch});
  }
  void finish(const parallel::GradBucket& bucket) override { bucket.memory.scale_(2); }
};

TEST(CommHook, OnesOwnIsCalledForEveryBucketAndRegisteredOnce) {
  run_ranks(2, [](comm::Communicator& communicator) {
    std::vector<double> expected = gradients_with(nullptr, communicator, 2);
    for (double& value : expected) value *= 2;
    EXPECT_EQ(gradients_with(std::make_shared<DoublingHook>(), communicator, 2), expected);
    Ddp ddp(make_linear(2, 1, 1), communicator);
    ddp.register_comm_hook(parallel::all_reduce_hook());
    expect_error(ErrorCode::Usage, "a hook was registered before",
                 [&] { ddp.register_comm_hook(parallel::all_reduce_hook()); });
  });
}

TEST(LoggingData, SaysBucketsOrderAndTimes) {
  run_ranks(2, [](comm::Communicator& communicator) {
    const auto net = std::make_shared<nn::Sequential>(
        std::vector<std::shared_ptr<nn::Module>>{make_linear(2, 4, 1), make_linear(4, 1, 2)});
    DdpOptions options;
    options.reducer.bucket_byte_limits = {64};
    Ddp ddp(net, communicator, options);
    EXPECT_FALSE(ddp.reducer().logging_data().last_step.has_value());
    for (int step = 0; step < 2; ++step) sum(ddp(ones(1))).backward();
    const parallel::DdpLoggingData data = ddp.reducer().logging_data();
    EXPECT_EQ(data.num_steps, 2u);
    EXPECT_TRUE(data.was_rebuilt);
    EXPECT_EQ(data.ready_order.size(), 4u);
    EXPECT_EQ(data.bucket_bytes.size(), ddp.reducer().bucket_plan().buckets.size());
    const auto json = nlohmann::json::parse(to_json(data));
    EXPECT_EQ(json["world_size"], 2);
    if (test_device().type != DeviceType::cpu) return;
    EXPECT_GE(data.last_step->communication_seconds, data.last_step->overlap_seconds);
    EXPECT_GT(json["last_step"]["forward_seconds"], 0);
  });
}

}  // namespace
}  // namespace lockstep::testing
