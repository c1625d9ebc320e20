#include "bad_calls.h"

namespace lockstep::kernels {
namespace {

TEST(ReductionChecks, EveryBackendRefusesABadCallInTheSameWords) {
  expect_refused({
      {ErrorCode::Shape, "[sum] y has size 2, expected 1",
       [](Backend& b, Stream& s) { b.sum(s, vec(3), vec(2)); }},
      {ErrorCode::DType, "[sum] y is float64, expected float32",
       [](Backend& b, Stream& s) { b.sum(s, vec(3), vec(1, kDouble)); }},
      {ErrorCode::DType, "[argmax_rows] y is float32, expected int64",
       [](Backend& b, Stream& s) { b.argmax_rows(s, mat(2, 3), vec(2)); }},
      {ErrorCode::Shape, "[argmax_rows] y has size 3, expected 2",
       [](Backend& b, Stream& s) { b.argmax_rows(s, mat(2, 3), vec(3, DType::int64)); }},
      {ErrorCode::Shape, "[argmax_rows] a row without columns has no largest element",
       [](Backend& b, Stream& s) { b.argmax_rows(s, mat(2, 0), vec(2, DType::int64)); }},
      {ErrorCode::Shape, "[norm] y has size 2, expected 1",
       [](Backend& b, Stream& s) { b.norm(s, std::vector<ConstTensorView>{vec(3)}, vec(2)); }},
  });
}

}  // namespace
}  // namespace lockstep::kernels
