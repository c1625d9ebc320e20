// Gradients against differences of the loss: those of every kind of net are right, and a gradient
// with a fault is named.
#include "tools/check/differences.h"

#include <gtest/gtest.h>

#include "engine/core/rng.h"
#include "engine/nn/models.h"
#include "tests/support/expect_close.h"

namespace lockstep::tools {
namespace {

using lockstep::testing::random_tensor;

constexpr std::size_t kEach = 1000;  // as many groups as there are parameters

// The loss of a model over a few rows.
std::function<Variable()> loss_of(nn::Module& model, const Tensor& x, std::size_t num_classes,
                                  std::size_t num_labels) {
  std::vector<std::int64_t> labels;
  for (std::size_t i = 0; i < num_labels; ++i) {
    labels.push_back(static_cast<std::int64_t>(3 * i % num_classes));
  }
  return [&model, x, kept = Tensor::from(labels, {num_labels})] {
    return cross_entropy(model(Variable(x)), kept);
  };
}

KeptTensors weights_of(const nn::Module& model) {
  KeptTensors weights;
  for (const auto& [name, parameter] : model.named_parameters()) {
    weights.emplace_back(name, parameter.value().to_vector<double>());
  }
  return weights;
}

// The parameter whose gradient is wrong, or nothing.
std::string wrong_in(nn::Module& model, const Tensor& x, std::size_t num_classes,
                     std::size_t num_labels, std::size_t num_groups = kEach) {
  const auto wrong = find_wrong_gradient(model, weights_of(model),
                                         loss_of(model, x, num_classes, num_labels), num_groups, 1);
  if (!wrong) return "";
  EXPECT_NE(wrong->by_gradient, wrong->by_difference);
  return wrong->parameter;
}

TEST(Differences, AcceptTheGradientsOfEveryNetForImages) {
  for (const char* text : {"lenet", "lenet5", "resnet18:4", "cnn:8c3-4c3-p2-8c5-a2-16-10"}) {
    for (const nn::ModelData& data : {nn::ModelData{{8, 8, 1}, 10}, {{12, 10, 3}, 10}}) {
      const auto model = nn::make_model(text, data, 1, DType::float64);
      const Tensor x = random_tensor({4, data.row[0], data.row[1], data.row[2]}, 2);
      EXPECT_EQ(wrong_in(*model, x, 10, 4), "") << text;
      EXPECT_EQ(wrong_in(*model, x, 10, 4, 3), "") << text << ", in groups";
    }
  }
}

TEST(Differences, AcceptTheGradientsOfPerceptronsAndGpts) {
  for (const char* text : {"mlp:12-16-10", "mlp:12-16-8-10:gelu", "mlp:12-16-10:tanh"}) {
    const auto model = nn::make_model(text, {{12}, 10}, 1, DType::float64);
    EXPECT_EQ(wrong_in(*model, random_tensor({5, 12}, 2), 10, 5), "") << text;
  }
  const nn::ModelData text{{6}, 11, nn::ModelData::Values::tokens};
  const auto gpt = nn::make_model("gpt:2-2-8-6", text, 1, DType::float64);
  const Tensor tokens =
      Tensor::from(std::vector<std::int64_t>{1, 2, 0, 10, 2, 2, 9, 2, 3, 4, 1, 1}, {2, 6});
  EXPECT_EQ(wrong_in(*gpt, tokens, 11, 12), "");
}

// Every unit of dark pixels is at ReLU's kink, and all values of their pools are equal.
TEST(Differences, AcceptDarkImagesAndBiasesOfZero) {
  const auto model = nn::make_model("cnn:4c3-p2-8-10", {{8, 8, 1}, 10}, 1, DType::float64);
  for (const auto& [name, parameter] : model->named_parameters()) {
    if (name.ends_with("bias")) parameter.value().fill(0);
  }
  EXPECT_EQ(wrong_in(*model, Tensor::zeros({4, 8, 8, 1}, DType::float64), 10, 4), "");
}

// Two layers with one weight, and the fault that a test asks for.
class Faulty final : public nn::ModuleOf<Faulty> {
 public:
  enum class Fault { none, tied_once, no_bias, twice };
  explicit Faulty(Fault fault) : fault_(fault) {
    register_parameter("weight", random_tensor({6, 6}, 1));
    register_parameter("bias", random_tensor({6}, 2));
    register_parameter("gain", random_tensor({6}, 3));
  }
  Variable forward(const Variable& x) override {
    const Variable weight = parameters()[0];
    const Variable bias = parameters()[1];
    const Variable gain = parameters()[2];
    const Variable h =
        linear(x, weight, fault_ == Fault::no_bias ? bias.detach() : bias, Activation::relu);
    const Variable y = linear(h, fault_ == Fault::tied_once ? weight.detach() : weight, Variable(),
                              Activation::none);
    // 2 gain - gain has the value of the gain, and twice its gradient.
    const Variable doubled = subtract(scale(gain, 2), gain.detach());
    return linear(y, diagonal(), fault_ == Fault::twice ? doubled : gain, Activation::none);
  }

 private:
  static Variable diagonal() { return Variable(random_tensor({6, 6}, 4)); }
  Fault fault_;
};

TEST(Differences, NameTheParameterWhoseGradientIsWrong) {
  using Fault = Faulty::Fault;
  for (const auto& [fault, parameter] : {std::pair(Fault::none, ""),
                                         {Fault::tied_once, "weight"},
                                         {Fault::no_bias, "bias"},
                                         {Fault::twice, "gain"}}) {
    Faulty model(fault);
    for (const std::size_t num_groups : {std::size_t{1}, kEach}) {
      EXPECT_EQ(wrong_in(model, random_tensor({7, 6}, 5), 6, 7, num_groups), parameter);
    }
  }
}

}  // namespace
}  // namespace lockstep::tools
