// Tensor parallelism trains what one device trains, and sends what the formula says.
#include "engine/parallel/tensor_parallel.h"

#include <gtest/gtest.h>

#include "engine/core/thread_context.h"
#include "engine/nn/gpt.h"
#include "engine/nn/models.h"
#include "engine/optim/optimizer.h"
#include "engine/trace/counters.h"
#include "tests/support/expect_close.h"
#include "tests/support/expect_error.h"
#include "tests/support/run_ranks.h"

namespace lockstep::testing {
namespace {

using nn::Sequential;
using parallel::tensor_parallel;
using parallel::whole_state;

constexpr nn::GptOptions kGpt{.heads = 4, .channels = 16, .dropout = 0.1, .seed = 3};
const Shape kSequences{2, 5, 16};

std::shared_ptr<Sequential> make_mlp(Device device, DType dtype = DType::float64) {
  return nn::make_mlp("mlp:6-12-8-4-3:gelu", 7, dtype, device);
}

std::shared_ptr<Sequential> make_blocks(Device device, DType dtype = DType::float64) {
  Rng rng(5);
  const nn::Placement placement{dtype, device};
  return std::make_shared<Sequential>(std::vector<std::shared_ptr<nn::Module>>{
      std::make_shared<nn::GptBlock>(kGpt, 0, rng, placement),
      std::make_shared<nn::GptBlock>(kGpt, 1, rng, placement)});
}

using MakeModel = std::shared_ptr<Sequential> (*)(Device, DType);

struct Trained {
  Tensor first_output;
  Tensor first_input_gradient;
};

Trained train(nn::Module& model, optim::Optimizer& optimizer, const Tensor& x, int num_steps) {
  Trained trained;
  thread_context().step = 0;  // of the dropout masks
  for (int step = 0; step < num_steps; ++step) {
    const Variable input(x, RequiresGrad::yes);
    const Variable y = model(input);
    optimizer.zero_grad();
    mean(multiply(y, y)).backward();
    if (step == 0) trained = {y.value(), input.grad()};
    optimizer.step();
  }
  return trained;
}

template <typename Optimizer, typename Options>
void expect_equals_one_device(MakeModel make, const Shape& shape, DType dtype,
                              const Options& options, int num_steps, const Tolerance& tolerance) {
  const auto whole = make(test_device(), dtype);
  Optimizer optimizer(whole->parameters(), options);
  const Tensor x = random_tensor(shape, 1, dtype);
  const Trained reference = train(*whole, optimizer, x, num_steps);
  const nn::StateDict reference_state = nn::state_dict(*whole);
  for (const int num_ranks : {1, 2, 4}) {
    run_ranks(num_ranks, [&](comm::Communicator& communicator) {
      const Device device = test_device(communicator.rank());
      const auto part = tensor_parallel(*make(device, dtype), communicator);
      Optimizer part_optimizer(part->parameters(), options);
      const Trained trained = train(*part, part_optimizer, x.to(device), num_steps);
      expect_close(trained.first_output, reference.first_output, tolerance);
      expect_close(trained.first_input_gradient, reference.first_input_gradient, tolerance);
      const nn::StateDict state = whole_state(*part);
      ASSERT_EQ(state.size(), reference_state.size());
      for (std::size_t i = 0; i < state.size(); ++i) {
        EXPECT_EQ(state[i].first, reference_state[i].first);
        expect_close(state[i].second, reference_state[i].second, tolerance);
      }
    });
  }
}

TEST(TensorParallel, AnMlpTrainsAsOnOneDevice) {
  const optim::AdamWOptions options{.learning_rate = 0.01};
  expect_equals_one_device<optim::AdamW>(make_mlp, {5, 6}, DType::float64, options, 8,
                                         {1e-9, 1e-9});
  expect_equals_one_device<optim::Sgd>(make_mlp, {5, 6}, DType::float32,
                                       optim::SgdOptions{.learning_rate = 0.1}, 8, kFloat32);
}

TEST(TensorParallel, AGptBlockTrainsAsOnOneDevice) {
  const optim::AdamWOptions options{.learning_rate = 0.01};
  expect_equals_one_device<optim::AdamW>(make_blocks, kSequences, DType::float64, options, 8,
                                         {1e-8, 1e-8});
}

// A vocabulary of 50 has 64 rows in memory.
TEST(TensorParallel, TheWholeStateOfAGptHasNoPadding) {
  const nn::Gpt gpt({.layers = 1, .heads = 2, .channels = 4, .context = 3, .vocabulary = 50});
  const nn::StateDict expected = nn::state_dict(gpt);
  const nn::StateDict found = whole_state(gpt);
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    EXPECT_EQ(found[i].first, expected[i].first);
    EXPECT_EQ(found[i].second.shape(), expected[i].second.shape()) << found[i].first;
  }
}

TEST(TensorParallel, RanksHoldTheirPartAlone) {
  run_ranks(4, [](comm::Communicator& communicator) {
    const Device device = test_device(communicator.rank());
    const auto whole = make_mlp(device);
    const auto part = tensor_parallel(*whole, communicator);
    std::size_t expected = (6 * 12 + 12 + 12 * 8 + 8 * 4 + 4 + 4 * 3) / 4;
    if (communicator.rank() == 0) expected += 8 + 3;  // the biases of the second layers
    EXPECT_EQ(part->num_parameters(), expected);
    EXPECT_EQ(part->named_parameters()[0].first, "0.weight");
  });
}

// Two all-reduces of the activations forward and two backward, each of which sends 2(n-1)/n of
// them.
TEST(TensorParallel, ABlockSendsFourAllReducesOfItsActivations) {
  LOCKSTEP_THREAD_RANKS_ONLY("reads the counts of all ranks");
  constexpr int kRanks = 4;
  const std::size_t num_bytes = 2 * kSequences.num_elements() * 8 * (kRanks - 1) / kRanks;
  trace::reset_collective_counts();
  run_ranks(kRanks, [&](comm::Communicator& communicator) {
    communicator.set_default_plan(plan::AllReducePlan::ring);
    const Device device = test_device(communicator.rank());
    const auto part = tensor_parallel(*make_blocks(device), communicator);
    const Variable x(random_tensor(kSequences, 1, DType::float64, device), RequiresGrad::yes);
    sum((*part)(x)).backward();
  });
  const std::vector<trace::CollectiveCount> counts = trace::collective_counts();
  ASSERT_EQ(counts.size(), kRanks);
  for (const trace::CollectiveCount& count : counts) {
    EXPECT_EQ(count.operation, "all_reduce");
    EXPECT_EQ(count.num_calls, 4 * 2) << "of two blocks";
    EXPECT_EQ(count.num_bytes, 4 * 2 * num_bytes);
  }
}

// A first layer's input is data, so nobody asks for its gradient.
TEST(TensorParallel, APairWhoseInputNeedsNoGradientSendsNoneBack) {
  LOCKSTEP_THREAD_RANKS_ONLY("reads the counts of all ranks");
  trace::reset_collective_counts();
  run_ranks(2, [](comm::Communicator& communicator) {
    const Device device = test_device(communicator.rank());
    const auto part =
        tensor_parallel(*nn::make_mlp("mlp:4-6-2", 1, DType::float32, device), communicator);
    sum((*part)(random_tensor({3, 4}, 1, DType::float32, device))).backward();
  });
  ASSERT_EQ(trace::collective_counts().size(), 2);
  EXPECT_EQ(trace::collective_counts()[0].num_calls, 1);
}

TEST(TensorParallel, FeaturesOrHeadsThatRanksDoNotDivideAreNamed) {
  run_ranks(3, [](comm::Communicator& communicator) {
    const Device device = test_device();
    expect_error(ErrorCode::Usage, "[tensor_parallel] 3 ranks do not divide 4 heads: take",
                 [&] { tensor_parallel(*make_blocks(device), communicator); });
    expect_error(ErrorCode::Usage, "3 ranks do not divide 4 outputs of a layer", [&] {
      tensor_parallel(*nn::make_mlp("mlp:3-4-2", 1, DType::float32, device), communicator);
    });
    expect_error(ErrorCode::Usage, "3 ranks do not divide 4 inputs of a layer", [&] {
      nn::Linear linear(4, 3);
      parallel::CutLinear(linear, parallel::CutLinear::Side::inputs, communicator);
    });
    expect_error(ErrorCode::Usage, "found nothing to cut: neither Linear, activation", [&] {
      tensor_parallel(*nn::make_mlp("mlp:3-2", 1, DType::float32, device), communicator);
    });
  });
}

}  // namespace
}  // namespace lockstep::testing
