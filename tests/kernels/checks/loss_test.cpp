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
