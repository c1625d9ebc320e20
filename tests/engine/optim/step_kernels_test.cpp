// How many kernels a training step is made of: on a GPU each costs time, however small it is.
#include <gtest/gtest.h>

#include "engine/autograd/ops/ops.h"
#include "engine/nn/mlp.h"
#include "engine/optim/sgd.h"
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

std::size_t num_nodes_of_step(const char* model_text) {
  const kernels::UntunedScope untuned;  // takes an epilogue wherever there is one
  const auto model = nn::make_mlp(model_text, 1);
  model->to(test_device());
  Sgd sgd(model->parameters(), {.learning_rate = 0.1, .momentum = 0.9});
  Rng rng(1);
  const Variable x(Tensor::uniform({16, 20}, -1, 1, rng));
  const Tensor labels = Tensor::zeros({16}, DType::int64);
  runtime::StepGraph graph({test_device()});
  while (!graph.is_captured()) {
    graph.run([&] {
      sgd.zero_grad();
      cross_entropy(model->forward(x), labels).backward();
      sgd.step();
    });
  }
  return graph.num_nodes();
}

// Loss, its gradient, the optimizer, and its count of steps.
constexpr std::size_t kBesidesProducts = 4;

// A product forward per layer, two backward, and one for the first, whose input needs no gradient.
// cuBLASLt may run one product as two kernels, so a real GPU may need more than the emulated one.
TEST_F(StepKernels, WithReluAreProductsAndTheLossAndTheOptimizer) {
  EXPECT_GE(num_nodes_of_step("mlp:20-8-10"), 3 * 2 - 1 + kBesidesProducts);
  EXPECT_LE(num_nodes_of_step("mlp:20-8-10"), 2 * (3 * 2 - 1) + kBesidesProducts);
}

TEST_F(StepKernels, OfTheEmulatedGpuAreOnePerProduct) {
  if (runtime::physical_gpus().front().name.find("mulated") == std::string::npos) {
    GTEST_SKIP() << "a real GPU may cut a product in two";
  }
  EXPECT_EQ(num_nodes_of_step("mlp:20-8-10"), 3 * 2 - 1 + kBesidesProducts);
  EXPECT_EQ(num_nodes_of_step("mlp:20-16-31-10"), 3 * 3 - 1 + kBesidesProducts);
  // cuBLASLt has no epilogue for these: a kernel forward and one backward for each.
  EXPECT_EQ(num_nodes_of_step("mlp:20-16-31-10:tanh"), 3 * 3 - 1 + 2 * 2 + kBesidesProducts);
  EXPECT_EQ(num_nodes_of_step("mlp:20-16-31-10:gelu"), 3 * 3 - 1 + 2 * 2 + kBesidesProducts);
}

}  // namespace
}  // namespace lockstep::optim
