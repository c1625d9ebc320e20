#include "bad_calls.h"

namespace lockstep::kernels {
namespace {

// batch 2, features 3.
const BatchNormForward kForward{.x = mat(2, 3),
                                .weight = vec(3),
                                .bias = vec(3),
                                .y = mat(2, 3),
                                .mean = vec(3),
                                .inverse_std = vec(3),
                                .running_mean = vec(3),
                                .running_var = vec(3)};

template <typename Change>
auto forward(Change change) {
  return [=](Backend& b, Stream& s) { b.batch_norm_forward(s, spoilt(kForward, change)); };
}

TEST(BatchNormChecks, EveryBackendRefusesABadForwardCallInTheSameWords) {
  expect_refused({
      {ErrorCode::Shape, "[batch_norm] y is [1, 2, 4], expected [1, 2, 3] (batch, rows, columns)",
       forward([](auto& c) { c.y = mat(2, 4); })},
      {ErrorCode::Shape, "[batch_norm] mean has size 4, expected 3",
       forward([](auto& c) { c.mean = vec(4); })},
      {ErrorCode::DType, "[batch_norm] inverse_std is float64, expected float32",
       forward([](auto& c) { c.inverse_std = vec(3, kDouble); })},
      {ErrorCode::Shape, "[batch_norm] weight has size 2, expected 3",
       forward([](auto& c) { c.weight = vec(2); })},
      {ErrorCode::Shape, "[batch_norm] bias has size 2, expected 3",
       forward([](auto& c) { c.bias = vec(2); })},
      {ErrorCode::Shape, "[batch_norm] running_mean has size 2, expected 3",
       forward([](auto& c) { c.running_mean = vec(2); })},
      {ErrorCode::Shape, "[batch_norm] running_var has size 2, expected 3",
       forward([](auto& c) { c.running_var = vec(2); })},
      {ErrorCode::Shape, "[batch_norm] evaluation needs the running mean and variance",
       forward([](auto& c) {
         c.statistics = BatchNormForward::Statistics::running;
         c.running_var = {};
       })},
  });
}

const BatchNormBackward kBackward{.x = mat(2, 3),
                                  .weight = vec(3),
                                  .mean = vec(3),
                                  .inverse_std = vec(3),
                                  .grad_y = mat(2, 3),
                                  .grad_x = mat(2, 3),
                                  .grad_weight = vec(3),
                                  .grad_bias = vec(3)};

template <typename Change>
auto backward(Change change) {
  return [=](Backend& b, Stream& s) { b.batch_norm_backward(s, spoilt(kBackward, change)); };
}

TEST(BatchNormChecks, EveryBackendRefusesABadBackwardCallInTheSameWords) {
  expect_refused({
      {ErrorCode::Shape,
       "[batch_norm backward] grad_y is [1, 3, 3], expected [1, 2, 3] (batch, rows, columns)",
       backward([](auto& c) { c.grad_y = mat(3, 3); })},
      {ErrorCode::Shape, "[batch_norm backward] mean has size 4, expected 3",
       backward([](auto& c) { c.mean = vec(4); })},
      {ErrorCode::Shape, "[batch_norm backward] inverse_std has size 4, expected 3",
       backward([](auto& c) { c.inverse_std = vec(4); })},
      {ErrorCode::DType, "[batch_norm backward] weight is float64, expected float32",
       backward([](auto& c) { c.weight = vec(3, kDouble); })},
      {ErrorCode::Shape, "[batch_norm backward] grad_weight has size 2, expected 3",
       backward([](auto& c) { c.grad_weight = vec(2); })},
      {ErrorCode::Shape, "[batch_norm backward] grad_bias has size 2, expected 3",
       backward([](auto& c) { c.grad_bias = vec(2); })},
      {ErrorCode::Shape,
       "[batch_norm backward] grad_x is [1, 2, 4], expected [1, 2, 3] (batch, rows, columns)",
       backward([](auto& c) { c.grad_x = mat(2, 4); })},
  });
}

}  // namespace
}  // namespace lockstep::kernels
