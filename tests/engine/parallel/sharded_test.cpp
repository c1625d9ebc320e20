// Sharded in its three depths: the numbers of Ddp, less memory, and how many bytes that costs.
#include "engine/parallel/sharded/sharded.h"

#include <gtest/gtest.h>

#include "engine/nn/layers.h"
#include "engine/nn/models.h"
#include "engine/optim/clip_grad_norm.h"
#include "engine/parallel/ddp/ddp.h"
#include "engine/runtime/logical_device.h"
#include "engine/trace/counters.h"
#include "tests/engine/parallel/function_module.h"
#include "tests/support/devices.h"
#include "tests/support/expect_close.h"
#include "tests/support/expect_error.h"
#include "tests/support/run_ranks.h"

namespace lockstep::testing {
namespace {

using parallel::Ddp;
using parallel::ShardDepth;
using parallel::Sharded;
using parallel::ShardPiece;

constexpr ShardDepth kDepths[] = {ShardDepth::optimizer, ShardDepth::gradients,
                                  ShardDepth::parameters};

enum class Rule { sgd, adamw, adamw_matrices };  // matrices: vectors do not decay

struct Case {
  std::string model = "mlp:6-40-24-5";
  nn::ModelData data = {};
  Rule rule = Rule::sgd;
  double clip_norm = 0;        // 0: no clipping
  std::size_t accumulate = 1;  // backward passes of a step
  std::size_t num_steps = 4;
  DType dtype = DType::float64;
};

constexpr double kRate = 0.05;
constexpr double kDecay = 0.1;

std::unique_ptr<optim::Optimizer> make_optimizer(Rule rule,
                                                 const std::vector<optim::ParameterGroup>& groups) {
  if (rule != Rule::sgd) {
    return std::make_unique<optim::AdamW>(groups, optim::AdamWOptions{.learning_rate = kRate});
  }
  return std::make_unique<optim::Sgd>(
      groups[0].parameters,
      optim::SgdOptions{.learning_rate = kRate, .momentum = 0.9, .weight_decay = kDecay});
}

Tensor input_of(const Case& run, Device device, std::size_t step, int rank) {
  const std::uint64_t seed = 100 * step + static_cast<std::uint64_t>(rank);
  if (run.model.starts_with("gpt")) {
    Rng rng(seed);
    std::vector<std::int64_t> tokens(3 * 8);
    for (std::int64_t& token : tokens) token = static_cast<std::int64_t>(rng.below(11));
    return Tensor::from(tokens, {3, 8}).to(device);
  }
  const bool is_image = run.model.starts_with("cnn") || run.model.starts_with("resnet");
  const Shape shape = is_image ? Shape{4, 8, 8, 1} : Shape{4, 6};
  return random_tensor(shape, seed).to(run.dtype).to(device);
}

const nn::ModelData kTokens{.row = {8}, .num_classes = 11, .values = nn::ModelData::Values::tokens};

std::shared_ptr<nn::Module> make_model(const Case& run, Device device) {
  nn::ModelData data = run.data;
  if (run.model.starts_with("gpt")) data = kTokens;
  return nn::make_model(run.model, data, 3, run.dtype, device);
}

// The mean of the squared outputs: labels would add nothing here.
Variable loss_of(nn::Module& model, const Tensor& x) {
  const Variable y = model(Variable(x));
  return mean(multiply(y, y));
}

nn::StateDict copy_of(const nn::Module& module) {
  nn::StateDict copy;
  for (const auto& [name, tensor] : nn::state_dict(module)) {
    copy.emplace_back(name, tensor.to(Device{}).clone());
  }
  return copy;
}

nn::StateDict train_ddp(const Case& run, comm::Communicator& communicator) {
  const Device device = test_device(communicator.rank());
  const auto model = make_model(run, device);
  Ddp ddp(model, communicator);
  const auto optimizer = make_optimizer(
      run.rule, run.rule == Rule::adamw_matrices
                    ? optim::decay_groups(model->parameters(), kDecay)
                    : std::vector<optim::ParameterGroup>{{model->parameters(), kDecay}});
  for (std::size_t step = 0; step < run.num_steps; ++step) {
    optimizer->zero_grad();
    for (std::size_t part = 0; part < run.accumulate; ++part) {
      const Tensor x = input_of(run, device, 10 * step + part, communicator.rank());
      const bool is_last = part + 1 == run.accumulate;
      if (is_last) {
        loss_of(ddp, x).backward();
      } else {
        const auto no_sync = ddp.no_sync();
        loss_of(ddp, x).backward();
      }
    }
    if (run.clip_norm > 0) optim::clip_grad_norm(model->parameters(), run.clip_norm);
    optimizer->step();
  }
  return copy_of(*model);
}

// The pieces' gradients, after the last step, are left.
struct ShardedRun {
  std::shared_ptr<nn::Module> model;
  std::shared_ptr<Sharded> sharded;
  std::unique_ptr<optim::Optimizer> optimizer;

  ShardedRun(const Case& run, comm::Communicator& communicator, ShardDepth depth)
      : model(make_model(run, test_device(communicator.rank()))),
        sharded(std::make_shared<Sharded>(model, communicator, depth)),
        optimizer(make_optimizer(run.rule, sharded->groups(kDecay, run.rule == Rule::adamw_matrices
                                                                       ? Sharded::Decays::matrices
                                                                       : Sharded::Decays::all))) {}

  void train(const Case& run, int rank) {
    for (std::size_t step = 0; step < run.num_steps; ++step) {
      optimizer->zero_grad();
      for (std::size_t part = 0; part < run.accumulate; ++part) {
        const Tensor x = input_of(run, test_device(rank), 10 * step + part, rank);
        if (part + 1 == run.accumulate) {
          loss_of(*sharded, x).backward();
        } else {
          const auto no_step = sharded->no_step();
          loss_of(*sharded, x).backward();
        }
      }
      if (run.clip_norm > 0) sharded->clip_grad_norm(run.clip_norm);
      optimizer->step();
    }
  }
};

void expect_same(const nn::StateDict& found, const nn::StateDict& expected, Tolerance tolerance) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    SCOPED_TRACE(found[i].first);
    EXPECT_EQ(found[i].first, expected[i].first);
    expect_close(found[i].second.to_vector<double>(), expected[i].second.to_vector<double>(),
                 tolerance);
  }
}

constexpr Tolerance kRounding{1e-9, 1e-11};

void expect_equals_ddp(const Case& run, int world_size, Tolerance tolerance = kRounding) {
  nn::StateDict expected;
  run_ranks(world_size, [&](comm::Communicator& communicator) {
    nn::StateDict weights = train_ddp(run, communicator);
    if (communicator.rank() == 0) expected = std::move(weights);
  });
  for (const ShardDepth depth : kDepths) {
    SCOPED_TRACE("depth " + std::to_string(static_cast<int>(depth)));
    nn::StateDict found;
    run_ranks(world_size, [&](comm::Communicator& communicator) {
      ShardedRun mine(run, communicator, depth);
      mine.train(run, communicator.rank());
      nn::StateDict weights = mine.sharded->state_dict();
      if (communicator.rank() == 0) found = std::move(weights);
    });
    expect_same(found, expected, tolerance);
  }
}

class ShardedRanks : public ::testing::TestWithParam<int> {};

TEST_P(ShardedRanks, EqualDdpWithMomentum) {
  expect_equals_ddp({.rule = Rule::sgd}, GetParam());
}

TEST_P(ShardedRanks, EqualDdpWithAdamw) {
  expect_equals_ddp({.rule = Rule::adamw}, GetParam());
}

TEST_P(ShardedRanks, ClipByTheNormOfAllRanksPieces) {
  expect_equals_ddp({.rule = Rule::sgd, .clip_norm = 1e-3}, GetParam());
}

TEST_P(ShardedRanks, AddUpGradientsOfSeveralBackwardPasses) {
  expect_equals_ddp({.rule = Rule::sgd, .accumulate = 3}, GetParam());
}

INSTANTIATE_TEST_SUITE_P(Ranks, ShardedRanks, ::testing::Values(1, 2, 3, 4));

const nn::ModelData kImages{.row = {8, 8, 1}, .num_classes = 5};

TEST(Sharded, EqualsDdpForConvolutions) {
  expect_equals_ddp({.model = "cnn:4c3-p2-6c3-p2-10-5", .data = kImages, .rule = Rule::adamw}, 2);
}

TEST(Sharded, EqualsDdpForResidualsWithBatchNorm) {
  expect_equals_ddp({.model = "resnet18:2", .data = kImages, .num_steps = 2}, 2);
}

TEST(Sharded, EqualsDdpForATableThatIsTheLastLayerTooAndVectorsThatDoNotDecay) {
  expect_equals_ddp({.model = "gpt:2-2-8-8", .rule = Rule::adamw_matrices}, 3);
}

TEST(Sharded, PutsAParameterOfTwoLayersIntoTheRootUnit) {
  run_ranks(2, [](comm::Communicator& communicator) {
    const auto layer = make_linear(4, 4, 1);
    const auto other = make_linear(4, 4, 2);
    const auto net =
        std::make_shared<nn::Sequential>(std::vector<std::shared_ptr<nn::Module>>{layer, other});
    std::vector<Variable> values = net->parameters();
    values[2] = values[0];  // other.weight is layer.weight
    net->set_parameters(values);
    net->to(test_device(communicator.rank()));
    Sharded sharded(net, communicator, ShardDepth::parameters);
    ASSERT_EQ(sharded.units().size(), 3U);  // the table, and both biases
    EXPECT_EQ(sharded.units()[0].layout().parameters.size(), 1U);
    EXPECT_EQ(sharded.units()[0].layout().parameters[0].first, "0.weight");
    const Tensor x = random_tensor({3, 4}, 5).to(test_device(communicator.rank()));
    loss_of(sharded, x).backward();
    sharded.gather([](const ShardPiece& piece) { return piece.value.grad(); },
                   [](const std::string&, const Tensor& whole) {
                     EXPECT_EQ(whole.to_vector<double>().size(), whole.num_elements());
                   });
    EXPECT_EQ(sharded.state_dict().size(), communicator.rank() == 0 ? 4U : 0U);
  });
}

// --- memory: bytes of each rank's device, measured by its pool

// 12 layers of 128 * 128 parameters, biases included: of which the pool's blocks waste nothing.
const Case kLayers{.model = "mlp:127-128-127-128-127-128-127-128-127-128-127-128-127",
                   .rule = Rule::adamw,
                   .num_steps = 1,
                   .dtype = DType::float32};

struct Bytes {
  std::size_t all = 0;   // after the first step: parameters, gradients and the optimizer's state
  std::size_t peak = 0;  // a second step's, activations included
  std::size_t sent = 0;  // bytes sent in that step
};

runtime::MemoryPool& pool_of(int rank) {
  return runtime::logical_device(test_device(rank)).memory();
}

template <typename Step>
Bytes measure(int rank, std::size_t before, optim::Optimizer& optimizer, nn::Module& model,
              const Step& backward) {
  Bytes bytes;
  backward(model);
  optimizer.step();
  bytes.all = pool_of(rank).statistics().current_bytes - before;
  optimizer.zero_grad();
  pool_of(rank).reset_peak();
  const std::size_t sent = trace::collective_bytes_of(rank);
  backward(model);
  optimizer.step();
  bytes.peak = pool_of(rank).statistics().peak_bytes - before;
  bytes.sent = trace::collective_bytes_of(rank) - sent;
  return bytes;
}

// Rank 0's. Without a depth, Ddp's.
Bytes bytes_of(std::optional<ShardDepth> depth) {
  Bytes bytes;
  run_ranks(4, [&](comm::Communicator& communicator) {
    const int rank = communicator.rank();
    const Tensor x = random_tensor({2, 127}, 1).to(DType::float32).to(test_device(rank));
    {  // A GPU's streams keep a little memory, once kernels and collectives have run.
      ShardedRun run(kLayers, communicator, ShardDepth::parameters);
      loss_of(*run.sharded, x).backward();
      run.optimizer->step();
    }
    const std::size_t before = pool_of(rank).statistics().current_bytes;
    const auto backward = [&](nn::Module& model) { loss_of(model, x).backward(); };
    Bytes mine;
    if (depth) {
      ShardedRun run(kLayers, communicator, *depth);
      mine = measure(rank, before, *run.optimizer, *run.sharded, backward);
    } else {
      const auto model = make_model(kLayers, test_device(rank));
      Ddp ddp(model, communicator);
      const auto optimizer = make_optimizer(Rule::adamw, {{model->parameters(), kDecay}});
      mine = measure(rank, before, *optimizer, ddp, backward);
    }
    if (rank == 0) bytes = mine;
  });
  return bytes;
}

// The formulas of sharded.h, P being the parameters' bytes: within 1 % for padding and scalars.
TEST(ShardedMemory, IsThatOfTheFormulas) {
  const double p = 12.0 * 128 * 128 * 4;
  const double n = 4;
  const auto expect = [&](std::optional<ShardDepth> depth, double formula) {
    EXPECT_NEAR(static_cast<double>(bytes_of(depth).all), formula, 0.01 * 4 * p);
  };
  expect({}, p + p + 2 * p);
  expect(ShardDepth::optimizer, p + p + p / n + 2 * p / n);
  expect(ShardDepth::gradients, p + p / n + 2 * p / n);
  expect(ShardDepth::parameters, p / n + p / n + 2 * p / n);
}

TEST(ShardedMemory, AtDepthThreeIsBelowThirtyPercentAndALayerAtTheirPeak) {
  const double of_ddp = static_cast<double>(bytes_of({}).all);
  const Bytes sharded = bytes_of(ShardDepth::parameters);
  const double layer = of_ddp / 12;  // its parameters, gradients and state
  EXPECT_LE(static_cast<double>(sharded.all), 0.30 * of_ddp);
  EXPECT_LE(static_cast<double>(sharded.peak), 0.30 * of_ddp + layer);
}

TEST(ShardedBytes, PerStepAreDdpsAndOneAndAHalfTimesThemAtDepthThree) {
  const double of_ddp = static_cast<double>(bytes_of({}).sent);
  const auto expect = [&](ShardDepth depth, double ratio) {
    EXPECT_NEAR(static_cast<double>(bytes_of(depth).sent) / of_ddp, ratio, 0.03);
  };
  expect(ShardDepth::optimizer, 1);
  expect(ShardDepth::gradients, 1);
  expect(ShardDepth::parameters, 1.5);
}

// --- mistakes

TEST(Sharded, SaysThatAParameterHasNoMemoryOutsideOfItsLayer) {
  run_ranks(2, [](comm::Communicator& communicator) {
    ShardedRun mine({}, communicator, ShardDepth::parameters);
    expect_error(ErrorCode::State, "memory is freed",
                 [&] { mine.model->parameters()[0].value().to_vector<double>(); });
  });
}

TEST(Sharded, NamesTheParametersOfALayerThatGotNoGradient) {
  run_ranks(2, [](comm::Communicator& communicator) {
    const auto half_used = make_function_module(
        {make_linear(6, 3, 1), make_linear(6, 3, 2)},
        [](nn::Module& self, const Variable& x) { return call_child(self, 0, x); });
    const auto net = std::make_shared<nn::Sequential>(
        std::vector<std::shared_ptr<nn::Module>>{half_used, make_linear(3, 3, 3)});
    net->to(test_device(communicator.rank()));
    Sharded sharded(net, communicator, ShardDepth::gradients);
    const Tensor x = input_of({}, test_device(communicator.rank()), 0, communicator.rank());
    expect_error(ErrorCode::State,
                 "got no gradient in this backward pass, and others of their "
                 "layer did: 0.1.weight, 0.1.bias",
                 [&] { loss_of(sharded, x).backward(); });
  });
}

TEST(Sharded, GivesARankWithoutPiecesAnOptimizerThatDoesNothing) {
  expect_equals_ddp({.model = "mlp:6-1"}, 4);
}

}  // namespace
}  // namespace lockstep::testing
