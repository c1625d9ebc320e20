#include "bad_calls.h"

namespace lockstep::kernels {
namespace {

void multiply(Backend& b, Stream& s, const MatrixView& left, const MatrixView& right,
              const MatrixView& c, Transpose transpose_left = Transpose::no) {
  b.matmul(s, left, transpose_left, right, Transpose::no, c, Write::overwrite);
}

TEST(MatmulChecks, EveryBackendRefusesABadCallInTheSameWords) {
  expect_refused({
      {ErrorCode::DType, "[matmul] b is float64, expected float32",
       [](Backend& b, Stream& s) { multiply(b, s, mat(2, 3), mat(3, 4, kDouble), mat(2, 4)); }},
      {ErrorCode::DType, "[matmul] c is float64, expected float32",
       [](Backend& b, Stream& s) { multiply(b, s, mat(2, 3), mat(3, 4), mat(2, 4, kDouble)); }},
      {ErrorCode::Shape, "[matmul] the inner dimension of b has size 5, expected 3",
       [](Backend& b, Stream& s) { multiply(b, s, mat(2, 3), mat(5, 4), mat(2, 4)); }},
      {ErrorCode::Shape, "[matmul] the inner dimension of b has size 3, expected 2",
       [](Backend& b, Stream& s) {
         multiply(b, s, mat(2, 3), mat(3, 4), mat(2, 4), Transpose::yes);
       }},
      {ErrorCode::Shape, "[matmul] the rows of c has size 5, expected 2",
       [](Backend& b, Stream& s) { multiply(b, s, mat(2, 3), mat(3, 4), mat(5, 4)); }},
      {ErrorCode::Shape, "[matmul] the columns of c has size 5, expected 4",
       [](Backend& b, Stream& s) { multiply(b, s, mat(2, 3), mat(3, 4), mat(2, 5)); }},
      {ErrorCode::Shape, "[matmul] batch sizes 2 and 3 do not give 3",
       [](Backend& b, Stream& s) {
         multiply(b, s, batch_of(2, 2, 3), batch_of(3, 3, 4), batch_of(3, 2, 4));
       }},
  });
}

// batch 2, in 3, out 4.
struct Forward {
  MatrixView x = mat(2, 3), weight = mat(4, 3);
  TensorView bias = vec(4);
  MatrixView y = mat(2, 4), preactivation{};
};

template <typename Change>
auto forward(Change change) {
  return [=](Backend& b, Stream& s) {
    const Forward c = spoilt(Forward{}, change);
    b.linear_forward(s, c.x, c.weight, c.bias, Activation::relu, c.y, c.preactivation);
  };
}

TEST(LinearChecks, EveryBackendRefusesABadForwardCallInTheSameWords) {
  expect_refused({
      {ErrorCode::DType, "[linear] weight is float64, expected float32",
       forward([](auto& c) { c.weight = mat(4, 3, kDouble); })},
      {ErrorCode::Shape, "[linear] weight is [1, 4, 5], expected [1, 4, 3] (batch, rows, columns)",
       forward([](auto& c) { c.weight = mat(4, 5); })},
      {ErrorCode::Shape, "[linear] y is [1, 3, 4], expected [1, 2, 4] (batch, rows, columns)",
       forward([](auto& c) { c.y = mat(3, 4); })},
      {ErrorCode::Shape, "[linear] y is [2, 2, 4], expected [1, 2, 4] (batch, rows, columns)",
       forward([](auto& c) { c.y = batch_of(2, 2, 4); })},
      {ErrorCode::Shape, "[linear] bias has size 3, expected 4",
       forward([](auto& c) { c.bias = vec(3); })},
      {ErrorCode::Shape,
       "[linear] preactivation is [1, 2, 3], expected [1, 2, 4] (batch, rows, columns)",
       forward([](auto& c) { c.preactivation = mat(2, 3); })},
  });
}

struct Backward {
  MatrixView x = mat(2, 3), weight = mat(4, 3), grad_z = mat(2, 4);
  MatrixView grad_x = mat(2, 3), grad_weight = mat(4, 3);
  TensorView grad_bias = vec(4);
};

template <typename Change>
auto backward(Change change) {
  return [=](Backend& b, Stream& s) {
    const Backward c = spoilt(Backward{}, change);
    b.linear_backward(s, c.x, c.weight, c.grad_z, c.grad_x, c.grad_weight, c.grad_bias);
  };
}

TEST(LinearChecks, EveryBackendRefusesABadBackwardCallInTheSameWords) {
  expect_refused({
      {ErrorCode::Shape,
       "[linear backward] weight is [1, 4, 5], expected [1, 4, 3] (batch, rows, columns)",
       backward([](auto& c) { c.weight = mat(4, 5); })},
      {ErrorCode::Shape,
       "[linear backward] grad_z is [1, 2, 5], expected [1, 2, 4] (batch, rows, columns)",
       backward([](auto& c) { c.grad_z = mat(2, 5); })},
      {ErrorCode::DType, "[linear backward] grad_z is float64, expected float32",
       backward([](auto& c) { c.grad_z = mat(2, 4, kDouble); })},
      {ErrorCode::Shape,
       "[linear backward] grad_x is [1, 2, 4], expected [1, 2, 3] (batch, rows, columns)",
       backward([](auto& c) { c.grad_x = mat(2, 4); })},
      {ErrorCode::Shape,
       "[linear backward] grad_weight is [1, 3, 4], expected [1, 4, 3] (batch, rows, columns)",
       backward([](auto& c) { c.grad_weight = mat(3, 4); })},
      {ErrorCode::Shape, "[linear backward] grad_bias has size 3, expected 4",
       backward([](auto& c) { c.grad_bias = vec(3); })},
  });
}

}  // namespace
}  // namespace lockstep::kernels
