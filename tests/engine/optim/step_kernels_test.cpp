// How many kernels a training step is made of: on a GPU each costs time, however small it is.
#include <gtest/gtest.h>

#include "engine/autograd/ops/ops.h"
#include "engine/nn/mlp.h"
#include "engine/optim/optimizer.h"
#include "engine/runtime/physical_gpus.h"
#include "engine/runtime/step_graph.h"
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

std::size_t num_nodes_of_step(const char* model_text) {
  constexpr std::size_t kBatch = 16;
  const auto model = nn::make_mlp(model_text, 1);
  model->to(test_device());
  Sgd optimizer(model->parameters());
  Rng rng(1);
  const Variable x(Tensor::uniform({kBatch, 20}, -1, 1, rng, DType::float32, test_device()));
  const Tensor labels = Tensor::zeros({kBatch}, DType::int64, test_device());
  runtime::StepGraph graph({test_device()});
  while (!graph.is_captured()) {
    graph.run([&] {
      optimizer.zero_grad();
      cross_entropy((*model)(x), labels).backward();
      optimizer.step();
    });
  }
  return graph.num_nodes();
}

// Forward: a product with its bias, and a kernel for bias and activation where there is one; the
// loss. Backward: the loss, then per layer the activation, the bias and two products, of which the
// first layer needs one. The optimizer, and its count of steps.
TEST_F(StepKernels, AreProductsBiasesActivationsTheLossAndTheOptimizer) {
  // A real cuBLASLt may run one product as two kernels.
  const bool is_emulated =
      runtime::physical_gpus().front().name.find("mulated") != std::string::npos;
  if (!is_emulated) GTEST_SKIP() << "counts kernels as the emulated GPU runs them";
  EXPECT_EQ(num_nodes_of_step("mlp:20-8-10"), (2u + 1u) + 2u + (3u + 3u) + 2u);
  EXPECT_EQ(num_nodes_of_step("mlp:20-16-31-10:tanh"), (2u + 2u + 1u) + 2u + (3u + 4u + 3u) + 2u);
  EXPECT_EQ(num_nodes_of_step("mlp:20-16-31-10:gelu"), (2u + 2u + 1u) + 2u + (3u + 4u + 3u) + 2u);
}

TEST_F(StepKernels, SumBiasGradientsAsTheCpuDoes) {
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

}  // namespace
}  // namespace lockstep::optim
