// A module's cross-entropy, which may be one operation with its last layer, beside the loss of what
// the module gives.
#include <gtest/gtest.h>

#include "engine/autograd/grad_mode.h"
#include "engine/core/thread_context.h"
#include "engine/nn/layers.h"
#include "engine/nn/mlp.h"
#include "tests/support/devices.h"
#include "tests/support/expect_close.h"
#include "tests/support/expect_error.h"
#include "tests/support/expect_gradients_match.h"

namespace lockstep::nn {
namespace {

using lockstep::testing::expect_close;
using lockstep::testing::expect_error;
using lockstep::testing::kFloat64;
using lockstep::testing::random_tensor;
using lockstep::testing::test_device;

constexpr std::size_t kRows = 12, kIn = 7;

Tensor some_labels(std::size_t classes) {
  std::vector<std::int64_t> labels(kRows);
  for (std::size_t i = 0; i < kRows; ++i) labels[i] = static_cast<std::int64_t>(i * 5 % classes);
  return Tensor::from(labels, {kRows}, test_device());
}

struct Trained {
  double loss = 0;
  std::vector<Tensor> gradients;  // of the input, then of the parameters
};

// Of two backward passes, the second with `last`.
template <typename Loss>
Trained train(Module& model, const Loss& loss_of, const Tensor& last) {
  model.zero_grad();
  const Variable x(random_tensor({kRows, kIn}, 1), RequiresGrad::yes);
  const Variable loss = loss_of(x);
  loss.backward({}, Graph::retain);
  loss.backward(last);
  Trained trained{loss.value().item(), {x.grad()}};
  for (const Variable& parameter : model.parameters()) {
    trained.gradients.push_back(parameter.grad());
  }
  return trained;
}

void expect_as_of_the_output(Module& model, std::size_t classes) {
  const Tensor labels = some_labels(classes);
  model.to(DType::float64);
  model.to(test_device());
  const Tensor half = Tensor::full({}, 0.5, DType::float64, test_device());
  for (const Reduction reduction : {Reduction::mean, Reduction::sum}) {
    const Trained expected = train(
        model, [&](const Variable& x) { return cross_entropy(model(x), labels, reduction); }, half);
    const Trained found = train(
        model, [&](const Variable& x) { return model.cross_entropy_of(x, labels, reduction); },
        half);
    EXPECT_NEAR(found.loss, expected.loss, 1e-12 * kRows);
    ASSERT_EQ(found.gradients.size(), expected.gradients.size());
    for (std::size_t i = 0; i < found.gradients.size(); ++i) {
      expect_close(found.gradients[i], expected.gradients[i].to_vector<double>(), kFloat64);
    }
  }
}

TEST(ModuleCrossEntropy, IsThatOfItsOutput) {
  for (const char* text :
       {"mlp:7-3", "mlp:7-9-10", "mlp:7-9-8-10:gelu", "mlp:7-9-20:tanh", "mlp:7-9-40"}) {
    SCOPED_TRACE(text);
    const auto model = make_mlp(text, 1);
    expect_as_of_the_output(*model, parse_mlp(text).sizes.back());
  }
}

TEST(ModuleCrossEntropy, OfOtherModulesTakesTheirOutput) {
  Rng rng(3);
  const auto linear = std::make_shared<Linear>(kIn, 5, rng);
  expect_as_of_the_output(*linear, 5);
  Sequential with_dropout(
      {std::make_shared<Linear>(kIn, 5, rng), std::make_shared<Dropout>(0.5, 7, 0)});
  expect_as_of_the_output(with_dropout, 5);
  Sequential nested({std::make_shared<Sequential>(
      std::vector<std::shared_ptr<Module>>{std::make_shared<Linear>(kIn, 5, rng)})});
  expect_as_of_the_output(nested, 5);
}

TEST(ModuleCrossEntropy, LeavesFrozenLayersAlone) {
  const auto model = make_mlp("mlp:7-9-10", 1);
  model->to(test_device());
  const Tensor labels = some_labels(10);
  const Variable x(random_tensor({kRows, kIn}, 1).to(DType::float32));
  std::vector<Variable> parameters = model->parameters();
  parameters[2].set_requires_grad(RequiresGrad::no);  // the last layer's weight
  model->cross_entropy_of(x, labels).backward();
  EXPECT_FALSE(parameters[2].grad().defined());
  EXPECT_TRUE(parameters[0].grad().defined() && parameters[3].grad().defined());
  parameters[2].set_requires_grad(RequiresGrad::yes);
  for (const int first : {0, 1}) parameters[first].set_requires_grad(RequiresGrad::no);
  model->zero_grad();
  model->cross_entropy_of(x, labels).backward();
  EXPECT_FALSE(parameters[0].grad().defined());
  EXPECT_TRUE(parameters[2].grad().defined() && parameters[3].grad().defined());
  const NoGradScope no_grad;
  EXPECT_FALSE(model->cross_entropy_of(x, labels).requires_grad());
}

TEST(ModuleCrossEntropy, RefusesWhatTheLossOfTheOutputWould) {
  const auto model = make_mlp("mlp:7-9-10", 1);
  model->to(test_device());
  const Variable x(random_tensor({kRows, kIn}, 1).to(DType::float32));
  const auto expect_alike = [&](ErrorCode code, const Variable& input, const Tensor& labels,
                                const Tensor& grad = {}) {
    std::string expected;
    try {
      cross_entropy((*model)(input), labels, Reduction::mean, grad);
      ADD_FAILURE() << "expected an error";
    } catch (const Error& error) {
      expected = error.what();
    }
    expect_error(code, expected,
                 [&] { model->cross_entropy_of(input, labels, Reduction::mean, grad); });
  };
  const Tensor labels = some_labels(10);
  expect_alike(ErrorCode::Shape, x, labels.rows(0, 3));
  expect_alike(ErrorCode::DType, x, labels.to(DType::int32));
  expect_alike(ErrorCode::Shape, x, labels, Tensor::zeros({2}, DType::float32, test_device()));
  expect_alike(ErrorCode::Shape, Variable(x.value().reshape({kIn, kRows})), labels);
  expect_alike(ErrorCode::Device, x, labels.to(test_device(1)));
}

TEST(ModuleCrossEntropy, RefusesValuesThatWereChangedBeforeBackward) {
  const auto model = make_mlp("mlp:7-9-10", 1);
  model->to(test_device());
  Tensor labels = some_labels(10);
  const Variable x(random_tensor({kRows, kIn}, 1).to(DType::float32));
  const Variable loss = model->cross_entropy_of(x, labels);
  labels.copy_from(some_labels(9));
  expect_error(ErrorCode::State, "CrossEntropy", [&] { loss.backward(); });
}

}  // namespace
}  // namespace lockstep::nn
