// Operations on images: gradients against central differences in double, values, and errors.
#include <gtest/gtest.h>

#include "engine/autograd/ops/images.h"
#include "tests/support/expect_error.h"
#include "tests/support/expect_gradients_match.h"

namespace lockstep::testing {
namespace {

using Variables = std::vector<Variable>;

TEST(ImageGradients, Patches) {
  for (const WindowOptions& options : {WindowOptions{1, 0}, WindowOptions{2, 1}}) {
    expect_gradients_match([&](const Variables& in) { return patches(in[0], 3, 2, options); },
                           {random_leaf({2, 5, 4, 3}, 1)});
  }
}

TEST(ImageGradients, Conv2d) {
  for (const WindowOptions& options :
       {WindowOptions{1, 0}, WindowOptions{1, 1}, WindowOptions{2, 1}}) {
    for (const Activation activation : {Activation::none, Activation::gelu_erf, Activation::tanh}) {
      expect_gradients_match(
          [&](const Variables& in) { return conv2d(in[0], in[1], in[2], options, activation); },
          {random_leaf({2, 5, 4, 3}, 1), random_leaf({4, 3, 3, 3}, 2), random_leaf({4}, 3)});
    }
  }
}

TEST(ImageGradients, Pools) {
  for (const WindowOptions& options : {WindowOptions{2, 0}, WindowOptions{1, 1}}) {
    expect_gradients_match([&](const Variables& in) { return max_pool2d(in[0], 2, options); },
                           {random_leaf({2, 5, 4, 3}, 1)});
    expect_gradients_match([&](const Variables& in) { return avg_pool2d(in[0], 3, options); },
                           {random_leaf({2, 5, 4, 3}, 1)});
  }
  expect_gradients_match([](const Variables& in) { return global_avg_pool(in[0]); },
                         {random_leaf({2, 5, 4, 3}, 1)});
}

TEST(ImageGradients, FlattenImages) {
  expect_gradients_match([](const Variables& in) { return flatten_images(in[0]); },
                         {random_leaf({2, 5, 4, 3}, 1)});
  expect_gradients_match([](const Variables& in) { return flatten_images(in[0]); },
                         {random_leaf({2, 5, 4, 1}, 1)});
}

TEST(ImageOps, FlattenHasPyTorchsOrder) {
  // Two pixels of three channels: channel by channel.
  const Variable x(Tensor::from(std::vector<float>{1, 2, 3, 10, 20, 30}, {1, 1, 2, 3}));
  const Variable y = flatten_images(x);
  EXPECT_EQ(y.shape(), (Shape{1, 6}));
  EXPECT_EQ(y.value().to_vector<float>(), (std::vector<float>{1, 10, 2, 20, 3, 30}));
}

TEST(ImageOps, MistakesAreNamed) {
  const Variable x(random_tensor({2, 4, 4, 3}, 1));
  const Variable weight(random_tensor({5, 3, 3, 3}, 2));
  expect_error(ErrorCode::Shape,
               "kernel size (3 x 3) can't be greater than the padded input (2 x 2", [&] {
                 conv2d(Variable(random_tensor({2, 2, 2, 3}, 1)), weight, {});
               });
  expect_error(ErrorCode::Shape, "non-positive stride is not supported, found stride 0", [&] {
    conv2d(x, weight, {}, {0, 0});
  });
  expect_error(ErrorCode::Shape,
               "expected input [2, 4, 4, 3] to have 2 channels, but got 3 channels instead", [&] {
                 conv2d(x, Variable(random_tensor({5, 3, 3, 2}, 2)), {});
               });
  expect_error(ErrorCode::Shape, "bias [4] does not fit the 5 channels",
               [&] { conv2d(x, weight, Variable(random_tensor({4}, 3))); });
  expect_error(ErrorCode::Shape, "expected images [batch, height, width, channels], found [2, 48]",
               [&] {
                 conv2d(reshape(x, {2, 48}), weight, {});
               });
  expect_error(ErrorCode::Shape, "pad should be at most half of the kernel size", [&] {
    max_pool2d(x, 2, {2, 2});
  });
}

}  // namespace
}  // namespace lockstep::testing
