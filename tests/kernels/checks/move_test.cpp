#include "bad_calls.h"

namespace lockstep::kernels {
namespace {

TEST(MoveChecks, EveryBackendRefusesABadCallInTheSameWords) {
  expect_refused({
      {ErrorCode::Shape, "[copy] to has size 4, expected 3",
       [](Backend& b, Stream& s) { b.copy(s, vec(3), vec(4)); }},
      {ErrorCode::DType, "[copy] to is float64, expected float32",
       [](Backend& b, Stream& s) { b.copy(s, vec(3), vec(3, kDouble)); }},
      {ErrorCode::DType, "[copy_matrix] to is float64, expected float32",
       [](Backend& b, Stream& s) { b.copy_matrix(s, mat(2, 3), mat(2, 3, kDouble)); }},
      {ErrorCode::Shape, "[copy_matrix] cannot copy [1, 2, 3] to [1, 3, 2]",
       [](Backend& b, Stream& s) { b.copy_matrix(s, mat(2, 3), mat(3, 2)); }},
      {ErrorCode::Shape, "[copy_matrix] cannot copy [2, 2, 3] to [1, 2, 3]",
       [](Backend& b, Stream& s) { b.copy_matrix(s, batch_of(2, 2, 3), mat(2, 3)); }},
      {ErrorCode::Shape, "[convert] to has size 4, expected 3",
       [](Backend& b, Stream& s) { b.convert(s, vec(3), vec(4, DType::int64)); }},
      {ErrorCode::DType, "[gather_rows] indices is int32, expected int64",
       [](Backend& b, Stream& s) {
         b.gather_rows(s, mat(5, 3), vec(2, DType::int32), mat(2, 3), 1);
       }},
      {ErrorCode::Shape, "[gather_rows] indices has size 4, expected 2",
       [](Backend& b, Stream& s) {
         b.gather_rows(s, mat(5, 3), vec(4, DType::int64), mat(2, 3), 1);
       }},
      {ErrorCode::Shape, "[gather_rows] a row of the source has size 4, expected 3",
       [](Backend& b, Stream& s) {
         b.gather_rows(s, mat(5, 4), vec(2, DType::int64), mat(2, 3), 1);
       }},
      {ErrorCode::Shape, "[gather_rows] the source's labels has size 4, expected 5",
       [](Backend& b, Stream& s) {
         b.gather_rows(s, mat(5, 3), vec(2, DType::int64), mat(2, 3), 1,
                       {vec(4, DType::int64), vec(2, DType::int64)});
       }},
      {ErrorCode::Shape, "[gather_rows] labels need rows that have columns",
       [](Backend& b, Stream& s) {
         b.gather_rows(s, mat(5, 0), vec(2, DType::int64), mat(2, 0), 1,
                       {vec(5, DType::int64), vec(2, DType::int64)});
       }},
      {ErrorCode::DType, "[gather_rows] labels is float32, expected int64",
       [](Backend& b, Stream& s) {
         b.gather_rows(s, mat(5, 3), vec(2, DType::int64), mat(2, 3), 1,
                       {vec(5, DType::int64), vec(2)});
       }},
  });
}

}  // namespace
}  // namespace lockstep::kernels
