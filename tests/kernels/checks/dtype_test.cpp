#include "bad_calls.h"

namespace lockstep::kernels {
namespace {

// Arguments that fit each other, of a type that the backend has no kernel for: the one text that
// names the backend.
TEST(DTypeChecks, EveryBackendNamesItselfAndTheTypeItHasNoKernelFor) {
  const bool on_cpu = testing::test_device_type() == DeviceType::cpu;
  const auto text = [&](const std::string& operation) {
    return "[" + operation + "] the " + (on_cpu ? "CPU" : "CUDA") +
           " backend has no kernel for int32; convert to float32 or float64";
  };
  constexpr DType kInt = DType::int32;
  const StepScalars scalars{vec(1, kDouble), vec(1, DType::int64)};
  expect_refused({
      {ErrorCode::DType, text("add"),
       [](Backend& b, Stream& s) { b.add(s, vec(3, kInt), vec(3, kInt), vec(3, kInt)); }},
      {ErrorCode::DType, text("activation"),
       [](Backend& b, Stream& s) {
         b.activation_forward(s, Activation::relu, vec(3, kInt), vec(3, kInt));
       }},
      {ErrorCode::DType, text("dropout"),
       [](Backend& b, Stream& s) { b.dropout(s, {}, mat(2, 3, kInt), mat(2, 3, kInt)); }},
      {ErrorCode::DType, text("sum"),
       [](Backend& b, Stream& s) { b.sum(s, vec(3, kInt), vec(1, kInt)); }},
      {ErrorCode::DType, text("norm"),
       [](Backend& b, Stream& s) {
         b.norm(s, std::vector<ConstTensorView>{vec(3, kInt)}, vec(1));
       }},
      {ErrorCode::DType, text("matmul"),
       [](Backend& b, Stream& s) {
         b.matmul(s, mat(2, 3, kInt), Transpose::no, mat(3, 4, kInt), Transpose::no,
                  mat(2, 4, kInt), Write::overwrite);
       }},
      {ErrorCode::DType, text("linear"),
       [](Backend& b, Stream& s) {
         const MatrixView x = mat(2, 3, kInt), weight = mat(4, 3, kInt), y = mat(2, 4, kInt);
         b.linear_forward(s, x, weight, {}, Activation::none, y, {});
       }},
      {ErrorCode::DType, text("mse"),
       [](Backend& b, Stream& s) {
         b.mse_forward(s, vec(3, kInt), vec(3, kInt), Reduction::mean, vec(1, kInt));
       }},
      {ErrorCode::DType, text("gather_rows"),
       [](Backend& b, Stream& s) {
         b.gather_rows(s, mat(5, 3, kInt), vec(0, DType::int64), mat(0, 3), 1);
       }},
      {ErrorCode::DType, text("sgd"),
       [=](Backend& b, Stream& s) {
         const SgdParameter good{vec(2), vec(2), {}}, bad{vec(3, kInt), vec(3, kInt), {}};
         b.sgd(s, std::vector<SgdParameter>{good, bad}, scalars, {});
       }},
      {ErrorCode::DType, text("adamw"),
       [=](Backend& b, Stream& s) {
         const TensorView whole = vec(3, kInt);
         b.adamw(s, std::vector<AdamWParameter>{{whole, whole, whole, whole}}, scalars, {});
       }},
      {ErrorCode::DType, text("multi_scale"),
       [](Backend& b, Stream& s) {
         b.multi_scale(s, std::vector<TensorView>{vec(2), vec(3, kInt)}, 2);
       }},
      {ErrorCode::DType, text("multi_clip"),
       [](Backend& b, Stream& s) {
         b.multi_clip(s, std::vector<TensorView>{vec(2), vec(3, kInt)}, vec(1, kDouble), 2);
       }},
      {ErrorCode::DType, text("pack"),
       [](Backend& b, Stream& s) {
         b.pack(s, std::vector<PackItem>{{vec(2, kInt), 0}}, 1, vec(6, kInt));
       }},
  });
}

}  // namespace
}  // namespace lockstep::kernels
