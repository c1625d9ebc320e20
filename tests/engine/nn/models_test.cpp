// The models that a word names.
#include "engine/nn/models.h"

#include <gtest/gtest.h>

#include "engine/nn/image_layers.h"
#include "engine/nn/state_dict.h"
#include "tests/support/expect_close.h"
#include "tests/support/expect_error.h"

namespace lockstep::nn {
namespace {

using lockstep::testing::expect_error;
using lockstep::testing::random_tensor;

const ModelData kFashion{{28, 28, 1}, 10};
const ModelData kDigits{{8, 8, 1}, 10};

Shape output_of(std::string_view text, const ModelData& data) {
  const Shape batch{2, data.row[0], data.row[1], data.row[2]};
  return (*make_model(text, data, 1))(Variable(random_tensor(batch, 1, DType::float32))).shape();
}

TEST(Models, LenetIsThatOfTheText) {
  EXPECT_EQ(make_model("lenet", kFashion, 0)->to_string(),
            R"(Sequential(
  (0): Conv2d(1, 20, kernel_size=(3, 3), stride=(1, 1))
  (1): ReLU()
  (2): AvgPool2d(kernel_size=2, stride=2, padding=0)
  (3): Conv2d(20, 50, kernel_size=(5, 5), stride=(1, 1))
  (4): ReLU()
  (5): AvgPool2d(kernel_size=2, stride=2, padding=0)
  (6): Flatten(start_dim=1, end_dim=-1)
  (7): Linear(in_features=800, out_features=128, bias=True)
  (8): ReLU()
  (9): Linear(in_features=128, out_features=10, bias=True)
))");
}

TEST(Models, EachTakesTheImagesOfEachDataSet) {
  for (const char* text : {"lenet", "lenet5", "resnet18:4", "cnn:4c3-4c3-p2-8c3-a2-16-10"}) {
    for (const ModelData& data : {kFashion, kDigits, ModelData{{32, 32, 3}, 10}}) {
      EXPECT_EQ(output_of(text, data), (Shape{2, 10})) << text;
      require_model_fits(text, data, "data");
    }
  }
}

TEST(Models, Resnet18HasTorchvisionsNamesAndSizes) {
  const auto model = make_model("resnet18", {{32, 32, 3}, 10}, 0);
  EXPECT_EQ(model->num_parameters(), 11173962u);  // the well-known CIFAR-10 variant
  std::vector<std::string> names;
  for (const auto& [name, tensor] : state_dict(*model)) names.push_back(name);
  EXPECT_EQ(names.size(), 122u);  // as torchvision's
  EXPECT_EQ(names.front(), "conv1.weight");
  EXPECT_EQ(names[7], "layer1.0.bn1.weight");
  for (const char* name :
       {"layer2.0.downsample.0.weight", "layer4.1.bn2.num_batches_tracked", "fc.bias"}) {
    EXPECT_NE(std::find(names.begin(), names.end(), name), names.end()) << name;
  }
}

TEST(Models, ParametersAreCountedBeforeTheyAreMade) {
  for (const char* text : {"mlp:784-32-10", "resnet18:16", "cnn:4c3-p2-8c5-16-10"}) {
    const double count = count_parameters(parse_model(text), kFashion);
    const ModelData data = text[0] == 'm' ? ModelData{{784}, 10} : kFashion;
    const auto exact = double(make_model(text, data, 0)->num_parameters());
    EXPECT_NEAR(count, exact, 0.01 * exact) << text;
  }
}

TEST(Models, WordsThatNameNoneSayWhatIsAllowed) {
  expect_error(ErrorCode::Usage,
               "'lenett': unknown model; allowed is mlp:", [] { parse_model("lenett"); });
  expect_error(ErrorCode::Usage, "'x' is not a number of channels",
               [] { parse_model("resnet18:x"); });
  expect_error(ErrorCode::Usage, "'32c4' is not a layer: NcK is a convolution",
               [] { parse_model("cnn:32c4-10"); });
  expect_error(ErrorCode::Usage, "'' is not a layer", [] { parse_model("cnn:"); });
  expect_error(ErrorCode::Usage, "its last layer must be a number",
               [] { parse_model("cnn:32c3-p2"); });
  expect_error(ErrorCode::Usage, "only linear layers can follow a linear layer",
               [] { parse_model("cnn:32-p2-10"); });
}

TEST(Models, AMisfitSaysWhatFits) {
  expect_error(ErrorCode::Usage,
               "'lenet' takes images, but synthetic has rows of 7 features; use mlp:7-...-3", [] {
                 require_model_fits("lenet", {{7}, 3}, "synthetic");
               });
  expect_error(ErrorCode::Usage,
               "'mlp:64-10' takes 64 inputs and gives 10 outputs, but mnist has 784 features", [] {
                 require_model_fits("mlp:64-10", {{784}, 10}, "mnist");
               });
  expect_error(
      ErrorCode::Usage,
      "'cnn:4c3-p2-p2-p4-10' does not fit the images of digits, 8 x 8: [model] kernel size "
      "(4 x 4) can't be greater than the padded input (2 x 2",
      [] { require_model_fits("cnn:4c3-p2-p2-p4-10", kDigits, "digits"); });
  expect_error(ErrorCode::Usage, "'cnn:4c3-8' gives 8 outputs, but digits has 10 classes",
               [] { require_model_fits("cnn:4c3-8", kDigits, "digits"); });
}

TEST(ParseMlp, ReadsSizesAndActivation) {
  const MlpSpec spec = parse_mlp("mlp:784-256-10");
  EXPECT_EQ(spec.sizes, (std::vector<std::size_t>{784, 256, 10}));
  EXPECT_EQ(spec.activation, Activation::relu);
  EXPECT_EQ(parse_mlp("mlp:4-2").sizes, (std::vector<std::size_t>{4, 2}));
  EXPECT_EQ(parse_mlp("mlp:4-2:relu").activation, Activation::relu);
  EXPECT_EQ(parse_mlp("mlp:4-2:gelu").activation, Activation::gelu_erf);
  EXPECT_EQ(parse_mlp("mlp:4-2:tanh").activation, Activation::tanh);
}

TEST(ParseMlp, SaysWhatIsAllowed) {
  const std::string allowed = "allowed is mlp:IN-HIDDEN-...-OUT[:relu|gelu|tanh]";
  for (const char* text :
       {"", "cnn", "mlp", "mlp:", "mlp:784", "mlp:784-", "mlp:-10", "mlp:784--10", "mlp:784-0-10",
        "mlp:784-x-10", "mlp:784-1.5-10", "mlp:784-10:swish", "mlp:784-10:", "mlp:784-10:relu:relu",
        "MLP:784-10", "mlp:4 -2", "mlp:99999999999999999999-2"}) {
    SCOPED_TRACE(text);
    expect_error(ErrorCode::Usage, allowed, [&] { parse_mlp(text); });
    expect_error(ErrorCode::Usage, fmt::format("'{}'", text), [&] { parse_mlp(text); });
  }
  expect_error(ErrorCode::Usage, "'swish' is not an activation",
               [] { parse_mlp("mlp:784-10:swish"); });
}

TEST(MakeMlp, NamesItsLayersAsPyTorchsSequentialDoes) {
  const auto model = make_mlp("mlp:4-3-3-2:gelu", 1);
  EXPECT_EQ(model->to_string(), R"(Sequential(
  (0): Linear(in_features=4, out_features=3, bias=True)
  (1): GELU(approximate='none')
  (2): Linear(in_features=3, out_features=3, bias=True)
  (3): GELU(approximate='none')
  (4): Linear(in_features=3, out_features=2, bias=True)
))");
  EXPECT_EQ(model->named_parameters()[2].first, "2.weight");
}

}  // namespace
}  // namespace lockstep::nn
