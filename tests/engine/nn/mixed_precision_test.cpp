// Nets under MatmulPrecision::bf16: activations and their gradients lie in memory as bfloat16,
// parameters and their gradients, statistics and losses as float32; and they learn as well.
#include <gtest/gtest.h>

#include <cmath>

#include "engine/autograd/ops/images.h"
#include "engine/autograd/ops/sequences.h"
#include "engine/nn/gpt.h"
#include "engine/nn/models.h"
#include "engine/runtime/logical_device.h"
#include "kernels/matmul_precision.h"
#include "tests/support/devices.h"
#include "tests/support/expect_close.h"
#include "tests/support/expect_error.h"

namespace lockstep::nn {
namespace {

using kernels::MatmulPrecision;
using lockstep::testing::expect_error;
using lockstep::testing::random_tensor;
using lockstep::testing::test_device;

class PrecisionScope {
 public:
  explicit PrecisionScope(MatmulPrecision precision) { kernels::set_matmul_precision(precision); }
  ~PrecisionScope() { kernels::set_matmul_precision(MatmulPrecision::highest); }
  PrecisionScope(const PrecisionScope&) = delete;
  PrecisionScope& operator=(const PrecisionScope&) = delete;
};

// A net with a batch for it.
struct Example {
  std::shared_ptr<Module> model;
  Variable x;
  Tensor labels;
};

Tensor labels_below(std::int64_t classes, std::size_t count) {
  std::vector<std::int64_t> labels;
  for (std::size_t i = 0; i < count; ++i) {
    labels.push_back(static_cast<std::int64_t>(i * i + 1) % classes);
  }
  return Tensor::from(labels, {count}, test_device());
}

Example example_of(const std::string& model) {
  if (model == "gpt") {
    constexpr GptOptions kOptions{
        .layers = 2, .heads = 2, .channels = 16, .context = 8, .vocabulary = 11, .dropout = 0.1};
    return {std::make_shared<Gpt>(kOptions, Placement{DType::float32, test_device()}),
            Variable(labels_below(11, 4 * 8).reshape({4, 8})), labels_below(11, 32)};
  }
  const ModelData images{{8, 8, 1}, 10};
  const Shape batch = model.starts_with("mlp") ? Shape{16, 64} : Shape{16, 8, 8, 1};
  return {make_model(model, images, 1, DType::float32, test_device()),
          Variable(random_tensor(batch, 1, DType::float32)), labels_below(10, 16)};
}

TEST(MixedPrecision, KeepsActivationsAsBfloat16AndAllElseAsFloat32) {
  for (const char* model : {"mlp:64-32-10", "lenet", "resnet18:4", "gpt"}) {
    SCOPED_TRACE(model);
    const PrecisionScope mixed(MatmulPrecision::bf16);
    const Example example = example_of(model);
    const Variable y = (*example.model)(example.x);
    EXPECT_EQ(y.dtype(), DType::bfloat16);
    const Variable loss = cross_entropy(y, example.labels);
    EXPECT_EQ(loss.dtype(), DType::float32);
    loss.backward();
    for (const auto& [name, parameter] : example.model->named_parameters()) {
      ASSERT_TRUE(parameter.grad().defined()) << name;
      EXPECT_EQ(parameter.dtype(), DType::float32) << name;
      EXPECT_EQ(parameter.grad().dtype(), DType::float32) << name;
    }
    for (const auto& [name, buffer] : example.model->named_buffers()) {
      EXPECT_NE(buffer.dtype(), DType::bfloat16) << name;
    }
  }
}

double loss_after(const std::string& model, MatmulPrecision precision, std::size_t num_steps) {
  const PrecisionScope scope(precision);
  const Example example = example_of(model);
  double loss = 0;
  for (std::size_t i = 0; i < num_steps; ++i) {
    const ThreadContextScope of_step({.step = i});
    example.model->zero_grad();
    const Variable mean = cross_entropy((*example.model)(example.x), example.labels);
    mean.backward();
    loss = mean.value().item();
    for (const Variable& parameter : example.model->parameters()) {
      parameter.add_(parameter.grad(), -0.3);
    }
  }
  return loss;
}

// Relative to the loss at the start: it falls to the same within 1 %.
TEST(MixedPrecision, LearnsAsFloat32Does) {
  for (const char* model : {"mlp:64-32-10", "cnn:4c3-p2-16-10", "gpt"}) {
    SCOPED_TRACE(model);
    const double first = loss_after(model, MatmulPrecision::highest, 1);
    const double wide = loss_after(model, MatmulPrecision::highest, 60);
    const double mixed = loss_after(model, MatmulPrecision::bf16, 60);
    EXPECT_LT(wide, 0.1 * first);
    EXPECT_NEAR(mixed, wide, 0.01 * first);
    EXPECT_NE(mixed, wide);
  }
}

TEST(MixedPrecision, LeavesFloat64Alone) {
  const PrecisionScope mixed(MatmulPrecision::bf16);
  const Variable x(random_tensor({3, 4}, 1)), weight(random_tensor({2, 4}, 2));
  EXPECT_EQ(linear(x, weight, {}).dtype(), DType::float64);
}

TEST(MixedPrecision, ConvertsWhereFloat32MeetsBfloat16) {
  const Variable wide(Tensor::full({2}, 1 + 0x1p-10, DType::float32, test_device()),
                      RequiresGrad::yes);
  const Variable half = to(wide, DType::bfloat16);
  EXPECT_EQ(half.value().to_vector<double>(), (std::vector<double>{1, 1}));
  const Variable y = sum(add(half, wide));
  EXPECT_EQ(y.value().item(), 4 + 0x1p-9);
  y.backward();
  EXPECT_EQ(wide.grad().to_vector<double>(), (std::vector<double>{2, 2}));
  const Variable weight(Tensor::zeros({2, 2}, DType::float64, test_device()));
  expect_error(ErrorCode::DType, "one dtype, found bfloat16 and float64", [&] {
    linear(reshape(half, {1, 2}), weight, {});
  });
}

}  // namespace
}  // namespace lockstep::nn
