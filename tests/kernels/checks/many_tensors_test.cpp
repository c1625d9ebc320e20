#include "bad_calls.h"

namespace lockstep::kernels {
namespace {

const StepScalars kScalars{.learning_rate = vec(1, kDouble), .step = vec(1, DType::int64)};

// A good parameter before the bad one: it must not have been updated when the error comes, or the
// call would have read the scalars' memory, which is not a device's.
void sgd(Backend& b, Stream& s, const SgdParameter& bad, const StepScalars& scalars = kScalars) {
  const SgdParameter good{vec(2), vec(2), vec(2)};
  b.sgd(s, std::vector<SgdParameter>{good, bad}, scalars, {.momentum = 0.9});
}

TEST(SgdChecks, EveryBackendRefusesABadCallInTheSameWords) {
  const SgdParameter good{vec(3), vec(3), vec(3)};
  expect_refused({
      {ErrorCode::Shape, "[sgd] grad has size 4, expected 3",
       [](Backend& b, Stream& s) {
         sgd(b, s, {vec(3), vec(4), vec(3)});
       }},
      {ErrorCode::DType, "[sgd] grad is float64, expected float32",
       [](Backend& b, Stream& s) {
         sgd(b, s, {vec(3), vec(3, kDouble), vec(3)});
       }},
      {ErrorCode::Shape, "[sgd] momentum has size 0, expected 3",
       [](Backend& b, Stream& s) {
         sgd(b, s, {vec(3), vec(3), {}});
       }},
      {ErrorCode::DType, "[sgd] learning_rate is float32, expected float64",
       [=](Backend& b, Stream& s) {
         sgd(b, s, good, {vec(1), kScalars.step});
       }},
      {ErrorCode::DType, "[sgd] step is float64, expected int64",
       [=](Backend& b, Stream& s) {
         sgd(b, s, good, {kScalars.learning_rate, vec(1, kDouble)});
       }},
  });
}

void adamw(Backend& b, Stream& s, const AdamWParameter& bad,
           const StepScalars& scalars = kScalars) {
  const AdamWParameter good{vec(2), vec(2), vec(2), vec(2)};
  b.adamw(s, std::vector<AdamWParameter>{good, bad}, scalars, {});
}

TEST(AdamWChecks, EveryBackendRefusesABadCallInTheSameWords) {
  expect_refused({
      {ErrorCode::Shape, "[adamw] grad has size 4, expected 3",
       [](Backend& b, Stream& s) {
         adamw(b, s, {vec(3), vec(4), vec(3), vec(3)});
       }},
      {ErrorCode::DType, "[adamw] first_moment is float64, expected float32",
       [](Backend& b, Stream& s) {
         adamw(b, s, {vec(3), vec(3), vec(3, kDouble), vec(3)});
       }},
      {ErrorCode::Shape, "[adamw] second_moment has size 0, expected 3",
       [](Backend& b, Stream& s) {
         adamw(b, s, {vec(3), vec(3), vec(3), {}});
       }},
      {ErrorCode::Shape, "[adamw] learning_rate has size 2, expected 1",
       [](Backend& b, Stream& s) {
         adamw(b, s, {vec(3), vec(3), vec(3), vec(3)}, {vec(2, kDouble), kScalars.step});
       }},
  });
}

TEST(PackChecks, EveryBackendRefusesABadCallInTheSameWords) {
  using Items = std::vector<PackItem>;
  constexpr std::size_t kHuge = static_cast<std::size_t>(-1);
  expect_refused({
      {ErrorCode::Shape, "[pack] 4 elements at 3 do not fit into a bucket of 6",
       [](Backend& b, Stream& s) {
         b.pack(s, Items{{vec(2), 0}, {vec(4), 3}}, 1, vec(6));
       }},
      {ErrorCode::Shape, "[pack] 4 elements at 18446744073709551615 do not fit into a bucket of 6",
       [](Backend& b, Stream& s) {
         b.pack(s, Items{{vec(4), kHuge}}, 1, vec(6));
       }},
      {ErrorCode::DType, "[pack] a tensor is float64, expected float32",
       [](Backend& b, Stream& s) {
         b.pack(s, Items{{vec(2, kDouble), 0}}, 1, vec(6));
       }},
      {ErrorCode::Shape, "[unpack] 4 elements at 3 do not fit into a bucket of 6",
       [](Backend& b, Stream& s) {
         b.unpack(s, vec(6), Items{{vec(2), 0}, {vec(4), 3}});
       }},
      {ErrorCode::DType, "[unpack] a tensor is float64, expected float32",
       [](Backend& b, Stream& s) {
         b.unpack(s, vec(6), Items{{vec(2, kDouble), 0}});
       }},
  });
}

}  // namespace
}  // namespace lockstep::kernels
