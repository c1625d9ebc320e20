#include "bad_calls.h"

namespace lockstep::kernels {
namespace {

constexpr auto kMean = Reduction::mean;
constexpr auto kLabel = DType::int64;

TEST(CrossEntropyChecks, EveryBackendRefusesABadCallInTheSameWords) {
  expect_refused({
      {ErrorCode::DType, "[cross_entropy] labels is int32, expected int64",
       [](Backend& b, Stream& s) {
         b.softmax_cross_entropy_forward(s, mat(2, 3), vec(2, DType::int32), kMean, mat(2, 3),
                                         vec(1));
       }},
      {ErrorCode::Shape, "[cross_entropy] labels has size 3, expected 2",
       [](Backend& b, Stream& s) {
         b.softmax_cross_entropy_forward(s, mat(2, 3), vec(3, kLabel), kMean, mat(2, 3), vec(1));
       }},
      {ErrorCode::Shape,
       "[cross_entropy] probabilities is [1, 2, 4], expected [1, 2, 3] (batch, rows, columns)",
       [](Backend& b, Stream& s) {
         b.softmax_cross_entropy_forward(s, mat(2, 3), vec(2, kLabel), kMean, mat(2, 4), vec(1));
       }},
      {ErrorCode::Shape, "[cross_entropy] loss has size 2, expected 1",
       [](Backend& b, Stream& s) {
         b.softmax_cross_entropy_forward(s, mat(2, 3), vec(2, kLabel), kMean, mat(2, 3), vec(2));
       }},
      {ErrorCode::Shape, "[cross_entropy] grad_loss has size 2, expected 1",
       [](Backend& b, Stream& s) {
         b.softmax_cross_entropy_forward(s, mat(2, 3), vec(2, kLabel), kMean, mat(2, 3), vec(1),
                                         {vec(2), mat(2, 3)});
       }},
      {ErrorCode::Shape,
       "[cross_entropy] grad_logits is [1, 3, 3], expected [1, 2, 3] (batch, rows, columns)",
       [](Backend& b, Stream& s) {
         b.softmax_cross_entropy_forward(s, mat(2, 3), vec(2, kLabel), kMean, mat(2, 3), vec(1),
                                         {vec(1), mat(3, 3)});
       }},
      {ErrorCode::Shape, "[cross_entropy backward] labels has size 3, expected 2",
       [](Backend& b, Stream& s) {
         b.softmax_cross_entropy_backward(s, mat(2, 3), vec(3, kLabel), kMean, vec(1), mat(2, 3));
       }},
      {ErrorCode::DType, "[cross_entropy backward] grad_loss is float64, expected float32",
       [](Backend& b, Stream& s) {
         b.softmax_cross_entropy_backward(s, mat(2, 3), vec(2, kLabel), kMean, vec(1, kDouble),
                                          mat(2, 3));
       }},
      {ErrorCode::Shape,
       "[cross_entropy backward] grad_logits is [1, 3, 2], expected [1, 2, 3] (batch, rows, "
       "columns)",
       [](Backend& b, Stream& s) {
         b.softmax_cross_entropy_backward(s, mat(2, 3), vec(2, kLabel), kMean, vec(1), mat(3, 2));
       }},
  });
}

// batch 2, in 3, classes 4.
const LinearCrossEntropy kLayer{.x = mat(2, 3),
                                .weight = mat(4, 3),
                                .bias = vec(4),
                                .labels = vec(2, kLabel),
                                .probabilities = mat(2, 4),
                                .loss = vec(1),
                                .gradient = {vec(1), mat(2, 4)},
                                .grad_x = mat(2, 3)};

template <typename Change>
auto layer(Change change) {
  return [=](Backend& b, Stream& s) { b.linear_cross_entropy(s, spoilt(kLayer, change)); };
}

TEST(LinearCrossEntropyChecks, EveryBackendRefusesABadCallInTheSameWords) {
  expect_refused({
      {ErrorCode::Shape, "[linear] weight is [1, 4, 2], expected [1, 4, 3] (batch, rows, columns)",
       layer([](auto& c) { c.weight = mat(4, 2); })},
      {ErrorCode::Shape, "[linear] bias has size 3, expected 4",
       layer([](auto& c) { c.bias = vec(3); })},
      {ErrorCode::Shape, "[linear] y is [1, 2, 5], expected [1, 2, 4] (batch, rows, columns)",
       layer([](auto& c) { c.probabilities = mat(2, 5); })},
      {ErrorCode::Shape, "[cross_entropy] labels has size 3, expected 2",
       layer([](auto& c) { c.labels = vec(3, kLabel); })},
      {ErrorCode::Shape,
       "[cross_entropy] grad_logits is [1, 3, 4], expected [1, 2, 4] (batch, rows, columns)",
       layer([](auto& c) { c.gradient.grad_logits = mat(3, 4); })},
      {ErrorCode::Shape, "[cross_entropy] grad_logits has no data, and is wanted",
       layer([](auto& c) { c.gradient = {}; })},
      {ErrorCode::Shape,
       "[linear backward] grad_x is [1, 2, 4], expected [1, 2, 3] (batch, rows, columns)",
       layer([](auto& c) { c.grad_x = mat(2, 4); })},
      {ErrorCode::DType, "[linear backward] input_preactivation is float64, expected float32",
       layer([](auto& c) {
         c.input_activation = Activation::gelu_erf;
         c.input_preactivation = mat(2, 3, kDouble);
       })},
  });
}

TEST(MseChecks, EveryBackendRefusesABadCallInTheSameWords) {
  expect_refused({
      {ErrorCode::Shape, "[mse] target has size 4, expected 3",
       [](Backend& b, Stream& s) { b.mse_forward(s, vec(3), vec(4), kMean, vec(1)); }},
      {ErrorCode::DType, "[mse] loss is float64, expected float32",
       [](Backend& b, Stream& s) { b.mse_forward(s, vec(3), vec(3), kMean, vec(1, kDouble)); }},
      {ErrorCode::Shape, "[mse backward] target has size 4, expected 3",
       [](Backend& b, Stream& s) { b.mse_backward(s, vec(3), vec(4), kMean, vec(1), vec(3)); }},
      {ErrorCode::Shape, "[mse backward] grad_loss has size 2, expected 1",
       [](Backend& b, Stream& s) { b.mse_backward(s, vec(3), vec(3), kMean, vec(2), vec(3)); }},
      {ErrorCode::Shape, "[mse backward] grad_x has size 4, expected 3",
       [](Backend& b, Stream& s) { b.mse_backward(s, vec(3), vec(3), kMean, vec(1), vec(4)); }},
  });
}

}  // namespace
}  // namespace lockstep::kernels
