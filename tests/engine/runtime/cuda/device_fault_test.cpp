// A kernel's complaint about its input reaches the host at its next wait.
#include "engine/runtime/cuda/device_fault.h"

#include "kernels/calls.h"
#include "tests/engine/runtime/cuda/cuda_test.h"

namespace lockstep::runtime {
namespace {

class DeviceFaults : public CudaTest {
 protected:
  static void gather(std::int64_t row, Device device = kFirst) {
    const Tensor source = Tensor::full({4, 3}, 1, DType::float32, device);
    const Tensor rows = Tensor::from(std::vector<std::int64_t>{0, row, 3}, {3}, device);
    const Tensor to = Tensor::empty({3, 3}, DType::float32, device);
    source.backend().gather_rows(source.stream(), {source.matrix(), rows.view(), to.matrix(), 1});
  }
  static void synchronize() { compute().synchronize(); }
  void TearDown() override {
    if (!physical_gpus().empty()) synchronize();
  }
};

TEST_F(DeviceFaults, ARowThatDoesNotExistIsNamed) {
  for (const std::int64_t row : {std::int64_t{4}, std::int64_t{-1}, std::int64_t{1} << 40}) {
    gather(row);
    expect_error(
        ErrorCode::Shape,
        "[gather_rows] row " + std::to_string(row) + " does not exist: the source has 4 rows",
        synchronize);
  }
}

TEST_F(DeviceFaults, ACopyBackThrowsThem) {
  const Tensor x = Tensor::zeros({2}, DType::float32, kFirst);
  gather(5);
  expect_error(ErrorCode::Shape, "row 5", [&] { x.to(kCpu); });
  EXPECT_EQ(values_of(x), std::vector<float>(2, 0));
  gather(6);
  expect_error(ErrorCode::Shape, "row 6", [&] { values_of(x); });
}

TEST_F(DeviceFaults, BelongToTheirDeviceAndToNoSibling) {
  gather(5, kSibling);
  compute(kFirst).synchronize();
  expect_error(ErrorCode::Shape, "row 5", [] { compute(kSibling).synchronize(); });
}

}  // namespace
}  // namespace lockstep::runtime
