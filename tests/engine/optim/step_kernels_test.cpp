// How many kernels a training step is made of: on a GPU each costs time, however small it is.
#include <gtest/gtest.h>

#include "engine/autograd/ops/ops.h"
#include "engine/nn/mlp.h"
#include "engine/optim/optimizers.h"
#include "engine/runtime/physical_gpus.h"
#include "engine/runtime/step_graph.h"
#include "kernels/matmul_tuning.h"
#include "tests/support/devices.h"

namespace lockstep::optim {
namespace {

using lockstep::testing::test_device;
using lockstep::testing::test_device_type;

class StepKernels : public ::testing::Test {
 protected:
  void SetUp() override {
    if (test_device_type() == DeviceType::cpu) GTEST_SKIP() << "counts the nodes of a CUDA graph";
  }
};

struct StepShape {
  std::size_t num_nodes = 0;
  std::size_t longest_chain = 0;
};

constexpr std::size_t kBatch = 16;

enum class Loss { of_logits, own };  // that is taken of the model's output, or by the model

template <typename Rule = Sgd>
StepShape shape_of_step(const char* model_text, std::size_t batch = kBatch,
                        Loss taken = Loss::of_logits) {
  const kernels::UntunedScope untuned;  // takes an epilogue wherever there is one
  const auto model = nn::make_mlp(model_text, 1);
  model->to(test_device());
  Rule optimizer(model->parameters());
  Rng rng(1);
  const Variable x(Tensor::uniform({batch, 20}, -1, 1, rng));
  const Tensor labels = Tensor::zeros({batch}, DType::int64);
  runtime::StepGraph graph({test_device()});
  while (!graph.is_captured()) {
    graph.run([&] {
      optimizer.zero_grad();
      (taken == Loss::own ? model->cross_entropy_of(x, labels)
                          : cross_entropy(model->forward(x), labels))
          .backward();
      optimizer.step();
    });
  }
  return {graph.num_nodes(), graph.longest_chain()};
}

std::size_t num_nodes_of_step(const char* model_text) {
  return shape_of_step(model_text).num_nodes;
}

// The loss with its gradient, and the optimizer, which counts its steps.
constexpr std::size_t kBesidesProducts = 2;

// A product forward per layer, two backward, and one for the first, whose input needs no gradient.
// cuBLASLt may run one product as two kernels, so a real GPU may need more than the emulated one.
TEST_F(StepKernels, WithReluAreProductsAndTheLossAndTheOptimizer) {
  EXPECT_GE(num_nodes_of_step("mlp:20-8-10"), 3 * 2 - 1 + kBesidesProducts);
  EXPECT_LE(num_nodes_of_step("mlp:20-8-10"), 2 * (3 * 2 - 1) + kBesidesProducts);
}

bool is_emulated() {
  return runtime::physical_gpus().front().name.find("mulated") != std::string::npos;
}

TEST_F(StepKernels, OfTheEmulatedGpuAreOnePerProduct) {
  if (!is_emulated()) GTEST_SKIP() << "a real GPU may cut a product in two";
  EXPECT_EQ(num_nodes_of_step("mlp:20-8-10"), 3 * 2 - 1 + kBesidesProducts);
  EXPECT_EQ(num_nodes_of_step("mlp:20-16-31-10"), 3 * 3 - 1 + kBesidesProducts);
  // cuBLASLt has no epilogue for these: a kernel forward and one backward for each.
  EXPECT_EQ(num_nodes_of_step("mlp:20-16-31-10:tanh"), 3 * 3 - 1 + 2 * 2 + kBesidesProducts);
  EXPECT_EQ(num_nodes_of_step("mlp:20-16-31-10:gelu"), 3 * 3 - 1 + 2 * 2 + kBesidesProducts);
}

// A product over one row has no epilogue that sums a bias gradient. The layer above has one.
TEST_F(StepKernels, OfOneRowSumBiasGradientsInTheLayerAbove) {
  if (!is_emulated()) GTEST_SKIP() << "a real GPU may cut a product in two";
  const std::size_t of_the_last_layer = 1;
  EXPECT_EQ(shape_of_step("mlp:20-8-10", 1).num_nodes,
            3 * 2 - 1 + kBesidesProducts + of_the_last_layer);
  EXPECT_EQ(shape_of_step("mlp:20-16-31-10", 1).num_nodes,
            3 * 3 - 1 + kBesidesProducts + of_the_last_layer);
}

// A model's own cross-entropy needs no kernel for the last layer's product and none for the
// gradient that it hands back.
TEST_F(StepKernels, AreTwoFewerWhereTheModelTakesTheLoss) {
  if (!is_emulated()) GTEST_SKIP() << "a real GPU may cut a product in two";
  const auto shape_of = [](const char* text) {
    return shape_of_step<Sgd>(text, kBatch, Loss::own);
  };
  EXPECT_EQ(shape_of("mlp:20-16-12-10").num_nodes, 8u);
  EXPECT_EQ(shape_of("mlp:20-16-12-10").longest_chain, 7u);
  EXPECT_EQ(shape_of("mlp:20-16-12-10:tanh").num_nodes, 8u + 2 + 1);
  EXPECT_EQ(shape_of("mlp:20-10").num_nodes, 3u);
  EXPECT_EQ(shape_of("mlp:20-16-12-33").num_nodes, 10u) << "more classes than it is made for";
}

// Wherever they are summed: in a graph that is kept, twice.
TEST_F(StepKernels, SumBiasGradientsAsTheCpuDoes) {
  const kernels::UntunedScope untuned;
  for (const std::size_t batch : {1, 16}) {
    Rng rng(1);
    const Tensor x = Tensor::uniform({batch, 20}, -1, 1, rng);
    const Tensor labels = Tensor::zeros({batch}, DType::int64);
    const auto gradients_on = [&](Device device) {
      const auto model = nn::make_mlp("mlp:20-16-31-10", 1);
      model->to(device);
      const Variable loss =
          cross_entropy(model->forward(Variable(x.to(device))), labels.to(device));
      loss.backward({}, Graph::retain);
      loss.backward();
      std::vector<float> all;
      for (const auto& parameter : model->parameters()) {
        const auto values = parameter.grad().to_vector<float>();
        all.insert(all.end(), values.begin(), values.end());
      }
      return all;
    };
    const auto expected = gradients_on({DeviceType::cpu, 0}), found = gradients_on(test_device());
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t i = 0; i < found.size(); ++i) {
      ASSERT_NEAR(found[i], expected[i], 1e-5) << batch << " rows, element " << i;
    }
  }
}

// The two backward products of a layer need not follow each other.
TEST_F(StepKernels, FollowEachOtherOnceAndAHalfPerProduct) {
  for (const bool is_adamw : {false, true}) {
    const auto shape_of = is_adamw ? shape_of_step<AdamW> : shape_of_step<Sgd>;
    const StepShape two = shape_of("mlp:20-8-10", kBatch, Loss::of_logits);
    const StepShape three = shape_of("mlp:20-16-12-10", kBatch, Loss::of_logits);
    EXPECT_LT(two.longest_chain, two.num_nodes);
    EXPECT_LT(three.longest_chain, three.num_nodes - 1);
    if (!is_emulated()) continue;
    EXPECT_EQ(two.longest_chain, 2 * 2 + kBesidesProducts);
    EXPECT_EQ(three.num_nodes, 10u);
    EXPECT_EQ(three.longest_chain, 2 * 3 + kBesidesProducts);
  }
}

// A seed of backward() that stays where it is costs nothing; one that is made in every step does.
TEST_F(StepKernels, HaveTheGradientWithTheLossWhereItIsKnownBefore) {
  if (!is_emulated()) GTEST_SKIP() << "counts kernels as the emulated GPU runs them";
  const Variable logits(Tensor::zeros({4, 3}, DType::float32, test_device()), RequiresGrad::yes);
  const Tensor labels = Tensor::zeros({4}, DType::int64, test_device());
  const Tensor weight = Tensor::full({}, 0.5, DType::float32, test_device());
  const auto num_nodes = [&](const Tensor& foreseen, const Tensor& given) {
    runtime::StepGraph graph({test_device()});
    Variable leaf = logits;
    while (!graph.is_captured()) {
      graph.run([&] {
        leaf.clear_grad();
        cross_entropy(leaf, labels, Reduction::sum, foreseen).backward(given);
      });
    }
    return graph.num_nodes();
  };
  EXPECT_EQ(num_nodes({}, {}), 1u);
  EXPECT_EQ(num_nodes(weight, weight), 1u);
  EXPECT_EQ(num_nodes({}, weight), 2u);
  EXPECT_EQ(num_nodes(weight, {}), 2u);
}

}  // namespace
}  // namespace lockstep::optim
