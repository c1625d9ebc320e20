#include "bad_calls.h"

namespace lockstep::kernels {
namespace {

TEST(ElementwiseChecks, EveryBackendRefusesABadCallInTheSameWords) {
  expect_refused({
      {ErrorCode::Shape, "[add] b has size 4, expected 3",
       [](Backend& b, Stream& s) { b.add(s, vec(3), vec(4), vec(3)); }},
      {ErrorCode::DType, "[add] b is float64, expected float32",
       [](Backend& b, Stream& s) { b.add(s, vec(3), vec(3, kDouble), vec(3)); }},
      {ErrorCode::Shape, "[add] y has size 2, expected 3",
       [](Backend& b, Stream& s) { b.add(s, vec(3), vec(3), vec(2)); }},
      {ErrorCode::Shape, "[multiply] b has size 4, expected 3",
       [](Backend& b, Stream& s) { b.multiply(s, vec(3), vec(4), vec(3)); }},
      {ErrorCode::DType, "[multiply] y is float64, expected float32",
       [](Backend& b, Stream& s) { b.multiply(s, vec(3), vec(3), vec(3, kDouble)); }},
      {ErrorCode::Shape, "[scale] y has size 4, expected 3",
       [](Backend& b, Stream& s) { b.scale(s, vec(3), 2, vec(4)); }},
      {ErrorCode::Shape, "[axpy] y has size 4, expected 3",
       [](Backend& b, Stream& s) { b.axpy(s, 2, vec(3), vec(4)); }},
      {ErrorCode::DType, "[axpy] y is float64, expected float32",
       [](Backend& b, Stream& s) { b.axpy(s, 2, vec(3), vec(3, kDouble)); }},
      {ErrorCode::Shape, "[activation] y has size 4, expected 3",
       [](Backend& b, Stream& s) { b.activation_forward(s, Activation::relu, vec(3), vec(4)); }},
      {ErrorCode::Shape, "[activation backward] grad_y has size 4, expected 3",
       [](Backend& b, Stream& s) {
         b.activation_backward(s, Activation::relu, vec(3), vec(4), vec(3));
       }},
      {ErrorCode::Shape, "[activation backward] grad_x has size 2, expected 3",
       [](Backend& b, Stream& s) {
         b.activation_backward(s, Activation::relu, vec(3), vec(3), vec(2));
       }},
  });
}

TEST(OrderedSumChecks, EveryBackendRefusesABadCallInTheSameWords) {
  using Views = std::vector<ConstTensorView>;
  expect_refused({
      {ErrorCode::Shape, "[ordered_sum] needs at least one source",
       [](Backend& b, Stream& s) { b.ordered_sum(s, {}, 1, vec(3)); }},
      {ErrorCode::Shape, "[ordered_sum] a source has size 4, expected 3",
       [](Backend& b, Stream& s) {
         b.ordered_sum(s, Views{vec(3), vec(4)}, 1, vec(3));
       }},
      {ErrorCode::DType, "[ordered_sum] a source is float64, expected float32",
       [](Backend& b, Stream& s) { b.ordered_sum(s, Views{vec(3, kDouble)}, 1, vec(3)); }},
      {ErrorCode::DType, "[ordered_sum] int32 can be summed with factor 1 only, found 0.5",
       [](Backend& b, Stream& s) {
         b.ordered_sum(s, Views{vec(3, DType::int32)}, 0.5, vec(3, DType::int32));
       }},
  });
}

TEST(DropoutChecks, EveryBackendRefusesABadCallInTheSameWords) {
  expect_refused({
      {ErrorCode::Shape, "[dropout] y is [1, 2, 4], expected [1, 2, 3] (batch, rows, columns)",
       [](Backend& b, Stream& s) { b.dropout(s, {}, mat(2, 3), mat(2, 4)); }},
      {ErrorCode::Usage, "[dropout] the probability must be in [0, 1], found 1.5",
       [](Backend& b, Stream& s) { b.dropout(s, {.probability = 1.5}, mat(2, 3), mat(2, 3)); }},
      {ErrorCode::Usage, "[dropout] the probability must be in [0, 1], found -0.5",
       [](Backend& b, Stream& s) { b.dropout(s, {.probability = -0.5}, mat(2, 3), mat(2, 3)); }},
      {ErrorCode::Shape, "[dropout] takes up to 2^34 columns, found 17179869185",
       [](Backend& b, Stream& s) {
         const MatrixView wide = mat(1, (std::size_t{1} << 34) + 1);
         b.dropout(s, {}, wide, wide);
       }},
  });
}

}  // namespace
}  // namespace lockstep::kernels
