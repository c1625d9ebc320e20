// The layers of images: values, printed forms, state and files.
#include "engine/nn/image_layers.h"

#include <gtest/gtest.h>

#include "engine/autograd/node.h"
#include "engine/checkpoint/safetensors.h"
#include "engine/nn/state_dict.h"
#include "tests/support/expect_close.h"
#include "tests/support/expect_error.h"
#include "tests/support/temp_folder.h"

namespace lockstep::nn {
namespace {

using lockstep::testing::expect_close;
using lockstep::testing::expect_error;
using lockstep::testing::kExact;
using lockstep::testing::kFloat32;
using lockstep::testing::random_tensor;
using lockstep::testing::TempFolder;

TEST(ImageLayers, PrintAsInPyTorch) {
  Rng rng(1);
  EXPECT_EQ(Conv2d(1, 20, 3, rng).to_string(), "Conv2d(1, 20, kernel_size=(3, 3), stride=(1, 1))");
  EXPECT_EQ(Conv2d(3, 64, 3, rng, {2, 1, Bias::no}).to_string(),
            "Conv2d(3, 64, kernel_size=(3, 3), stride=(2, 2), padding=(1, 1), bias=False)");
  EXPECT_EQ(MaxPool2d(2).to_string(),
            "MaxPool2d(kernel_size=2, stride=2, padding=0, dilation=1, ceil_mode=False)");
  EXPECT_EQ(AvgPool2d(3, {1, 1}).to_string(), "AvgPool2d(kernel_size=3, stride=1, padding=1)");
  EXPECT_EQ(
      BatchNorm2d(64).to_string(),
      "BatchNorm2d(64, eps=1e-05, momentum=0.1, affine=True, bias=True, track_running_stats=True)");
}

TEST(ImageLayers, BatchNorm2dIsBatchNorm1dOfThePixels) {
  const Tensor images = random_tensor({3, 4, 5, 6}, 1, DType::float32);
  BatchNorm2d layer(6);
  BatchNorm1d rows(6);
  for (int pass = 0; pass < 2; ++pass) {
    const Variable y = layer(Variable(images));
    EXPECT_EQ(y.shape(), images.shape());
    expect_close(y.value().reshape({60, 6}), rows(Variable(images.reshape({60, 6}))).value(),
                 kExact);
    layer.eval();
    rows.eval();
  }
  for (std::size_t i = 0; i < 3; ++i) expect_close(layer.buffers()[i], rows.buffers()[i], kExact);
}

TEST(ImageLayers, BatchNormOfOneValueIsRefused) {
  BatchNorm2d layer(6);
  expect_error(ErrorCode::Shape,
               "expected more than 1 value per channel when training, got input size [1, 1, 1, 6]",
               [&] {
                 layer(Variable(Tensor::zeros({1, 1, 1, 6})));
               });
  expect_error(ErrorCode::Shape, "expected 4D input (got 2D input)", [&] {
    layer(Variable(Tensor::zeros({2, 6})));
  });
}

TEST(ImageLayers, ASequentialFusesAConvolutionWithItsActivation) {
  Rng rng(1);
  const auto layer = std::make_shared<Conv2d>(3, 5, 3, rng);
  Sequential model({layer, std::make_shared<ReLU>()});
  const Variable x(random_tensor({2, 6, 6, 3}, 1, DType::float32));
  const Variable y = model(x);
  EXPECT_STREQ(y.node()->name(), "Conv2d");
  expect_close(y.value(), relu((*layer)(x)).value(), kFloat32);
}

TEST(ImageLayers, AResidualAddsBodyAndShortcut) {
  Rng rng(1);
  const auto conv = std::make_shared<Conv2d>(3, 3, 3, rng, Conv2dOptions{1, 1});
  const auto shortcut = std::make_shared<Conv2d>(3, 3, 1, rng);
  const Variable x(random_tensor({2, 4, 4, 3}, 1, DType::float32));
  Residual plain({{"conv1", conv}});
  expect_close(plain(x).value(), relu(add((*conv)(x), x)).value(), kExact);
  Residual block({{"conv1", conv}}, shortcut);
  expect_close(block(x).value(), relu(add((*conv)(x), (*shortcut)(x))).value(), kExact);
  std::vector<std::string> names;
  for (const auto& [name, parameter] : block.named_parameters()) names.push_back(name);
  EXPECT_EQ(names, (std::vector<std::string>{"conv1.weight", "conv1.bias", "downsample.weight",
                                             "downsample.bias"}));
}

TEST(ImageLayers, FilesHaveConvolutionsInPyTorchsOrder) {
  const TempFolder folder;
  Rng rng(1);
  Conv2d layer(2, 3, 2, rng);
  // Element [o][y][x][i] is the number oyxi.
  std::vector<float> memory;
  std::vector<float> file;
  for (int o = 0; o < 3; ++o) {
    for (int p = 0; p < 4; ++p) {
      for (int i = 0; i < 2; ++i) memory.push_back(float(100 * o + 10 * p + i));
    }
    for (int i = 0; i < 2; ++i) {
      for (int p = 0; p < 4; ++p) file.push_back(float(100 * o + 10 * p + i));
    }
  }
  layer.weight().value().copy_from(Tensor::from(memory, {3, 2, 2, 2}));
  save_weights(folder / "w.safetensors", layer);
  const auto contents = checkpoint::read_safetensors(folder / "w.safetensors");
  ASSERT_EQ(contents.arrays[0].name, "weight");
  std::vector<float> found(file.size());
  std::memcpy(found.data(), contents.arrays[0].bytes.data(), file.size() * sizeof(float));
  EXPECT_EQ(found, file);
  const StateDict loaded = load_weights(folder / "w.safetensors");
  EXPECT_EQ(loaded[0].second.to_vector<float>(), memory);
}

TEST(ImageLayers, AnotherKernelIsNamedInPyTorchsOrder) {
  Rng rng(1);
  Conv2d layer(2, 3, 5, rng);
  expect_error(ErrorCode::Shape,
               "size mismatch for weight: copying a param with shape torch.Size([3, 2, 3, 3]) from "
               "checkpoint, the shape in current model is torch.Size([3, 2, 5, 5]).",
               [&] { load_state_dict(layer, state_dict(Conv2d(2, 3, 3, rng))); });
}

}  // namespace
}  // namespace lockstep::nn
