// Bad calls, which every backend must refuse in the same words: a table of calls with the whole
// text of the error.
#include <gtest/gtest.h>

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "engine/core/error.h"
#include "engine/runtime/logical_device.h"
#include "kernels/calls.h"
#include "tests/support/devices.h"

namespace lockstep::kernels {
namespace {

constexpr DType kFloat = DType::float32;
constexpr DType kDouble = DType::float64;

// Views whose elements nobody reads: a bad call ends before that. All stand at one place on the
// host.
void* some_memory() {
  alignas(64) static std::byte memory[64];
  return memory;
}
TensorView vec(std::size_t num_elements, DType dtype = kFloat) {
  return {some_memory(), dtype, num_elements};
}
MatrixView mat(std::size_t rows, std::size_t cols, DType dtype = kFloat) {
  return matrix_view(some_memory(), dtype, rows, cols);
}

struct BadCall {
  ErrorCode code;
  std::string text;
  std::function<void(Backend&, Stream&)> call;
};

// Makes each call on the device under test and compares code and text.
void expect_refused(const std::vector<BadCall>& table) {
  const Device device = testing::test_device();
  Backend& backend_under_test = backend(device.type);
  Stream& stream = runtime::logical_device(device).compute_stream();
  for (const BadCall& row : table) {
    try {
      row.call(backend_under_test, stream);
      ADD_FAILURE() << "expected an error: " << row.text;
    } catch (const Error& error) {
      EXPECT_EQ(to_string(error.code()), to_string(row.code)) << row.text;
      EXPECT_EQ(error.what(), row.text);
    }
  }
}

TEST(ElementwiseChecks, BadCallsAreRefusedInTheSameWords) {
  expect_refused({
      {ErrorCode::Shape, "[add] b has size 4, expected 3",
       [](Backend& b, Stream& s) {
         b.add(s, {vec(3), vec(4), vec(3)});
       }},
      {ErrorCode::DType, "[add] b is float64, expected float32",
       [](Backend& b, Stream& s) {
         b.add(s, {vec(3), vec(3, kDouble), vec(3)});
       }},
      {ErrorCode::Shape, "[add] y has size 2, expected 3",
       [](Backend& b, Stream& s) {
         b.add(s, {vec(3), vec(3), vec(2)});
       }},
      {ErrorCode::Shape, "[scale] y has size 4, expected 3",
       [](Backend& b, Stream& s) {
         b.scale(s, {vec(3), 2, vec(4)});
       }},
      {ErrorCode::Shape, "[axpy] y has size 4, expected 3",
       [](Backend& b, Stream& s) {
         b.axpy(s, {2, vec(3), vec(4)});
       }},
      {ErrorCode::Shape, "[copy] to has size 4, expected 3",
       [](Backend& b, Stream& s) {
         b.copy(s, {vec(3), vec(4)});
       }},
  });
}

TEST(OrderedReduceChecks, BadCallsAreRefusedInTheSameWords) {
  using Views = std::vector<ConstTensorView>;
  expect_refused({
      {ErrorCode::Shape, "[ordered_reduce] needs at least one source",
       [](Backend& b, Stream& s) {
         b.ordered_reduce(s, {{}, 1, vec(3)});
       }},
      {ErrorCode::Shape, "[ordered_reduce] a source has size 4, expected 3",
       [](Backend& b, Stream& s) {
         b.ordered_reduce(s, {Views{vec(3), vec(4)}, 1, vec(3)});
       }},
      {ErrorCode::DType, "[ordered_reduce] a source is float64, expected float32",
       [](Backend& b, Stream& s) {
         b.ordered_reduce(s, {Views{vec(3, kDouble)}, 1, vec(3)});
       }},
      {ErrorCode::Shape, "[ordered_reduce] a copy has size 2, expected 3",
       [](Backend& b, Stream& s) {
         const TensorView copy = vec(2);
         b.ordered_reduce(s, {Views{vec(3)}, 1, vec(3), ReduceOp::sum, std::span(&copy, 1)});
       }},
      {ErrorCode::DType, "[ordered_reduce] int32 can be reduced with factor 1 only, found 0.5",
       [](Backend& b, Stream& s) {
         b.ordered_reduce(s, {Views{vec(3, DType::int32)}, 0.5, vec(3, DType::int32)});
       }},
  });
}

// Arguments that fit each other, of a type that the backend has no kernel for: the one text that
// names the backend.
TEST(DTypeChecks, EveryBackendNamesTheTypeItCannotTake) {
  const bool on_cpu = testing::test_device_type() == DeviceType::cpu;
  const auto text = [&](const std::string& operation) {
    return "[" + operation + "] the " + (on_cpu ? "CPU" : "CUDA") +
           " backend has no kernel for int32; convert to float32 or float64";
  };
  constexpr DType kInt = DType::int32;
  expect_refused({
      {ErrorCode::DType, text("add"),
       [](Backend& b, Stream& s) {
         b.add(s, {vec(3, kInt), vec(3, kInt), vec(3, kInt)});
       }},
      {ErrorCode::DType, text("matmul"),
       [](Backend& b, Stream& s) {
         b.matmul(s, {mat(2, 3, kInt), Transpose::no, mat(3, 4, kInt), Transpose::no,
                      mat(2, 4, kInt), Write::overwrite});
       }},
      {ErrorCode::DType, text("linear"),
       [](Backend& b, Stream& s) {
         const MatrixView x = mat(2, 3, kInt), weight = mat(4, 3, kInt), y = mat(2, 4, kInt);
         b.linear_forward(s, {x, weight, {}, Activation::none, y, {}});
       }},
      {ErrorCode::DType, text("gather_rows"),
       [](Backend& b, Stream& s) {
         b.gather_rows(s, {mat(5, 3, kInt), vec(0, DType::int64), mat(0, 3), 1});
       }},
  });
}

}  // namespace
}  // namespace lockstep::kernels
