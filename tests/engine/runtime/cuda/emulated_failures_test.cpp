// A kernel that fails when it runs, long after it was launched.
#include "engine/runtime/step_graph.h"
#include "tests/emulated_gpu/control.h"
#include "tests/engine/runtime/cuda/cuda_test.h"

namespace lockstep::runtime {
namespace {

class KernelFailures : public CudaTest {
 protected:
  void TearDown() override { emulated_gpu::clear_faults(); }
  // The stream is held up until the kernel is launched: the launch itself is no failure.
  static void launch_kernel_that_fails(const Tensor& x) {
    x.fill(1);
    x.stream().synchronize();
    Gate gate;
    gate.block(x.stream());
    emulated_gpu::fail_next_kernel(cuda::cuda_stream(x.stream()).handle());
    x.fill(1);
  }
};

constexpr const char* kWords = "an illegal memory access was encountered (cudaErrorIllegalAddress)";

TEST_F(KernelFailures, AreThrownByTheNextWait) {
  const Tensor x = Tensor::zeros({100}, DType::float32, kFirst);
  compute().synchronize();
  launch_kernel_that_fails(x);
  expect_error(ErrorCode::Cuda, kWords, [] { compute().synchronize(); });
  expect_error(ErrorCode::Cuda, kWords, [&] { values_of(x); });
  emulated_gpu::clear_faults();
  x.fill(2);
  EXPECT_EQ(values_of(x), std::vector<float>(100, 2));
}

TEST_F(KernelFailures, LetMemoryGoWithoutAnotherError) {
  {
    const Tensor x = Tensor::zeros({100}, DType::float32, kFirst);
    const Tensor y = Tensor::zeros({200}, DType::float32, kFirst);
    y.storage()->record_use(comm());
    launch_kernel_that_fails(x);
    expect_error(ErrorCode::Cuda, kWords, [] { compute().synchronize(); });
  }
  logical_device(kFirst).own_memory().release_cached();
  emulated_gpu::clear_faults();
  EXPECT_EQ(values_of(Tensor::full({10}, 1, DType::float32, kFirst)), std::vector<float>(10, 1));
}

TEST_F(KernelFailures, InsideAGraphEndItWithoutAnotherError) {
  const Tensor x = Tensor::zeros({100}, DType::float32, kFirst);
  {
    StepGraph graph({kFirst, kSibling});
    const auto step = [&] { x.copy_from(Tensor::full({100}, 1, DType::float32, kFirst)); };
    while (!graph.is_captured()) graph.run(step);
    compute().synchronize();
    launch_kernel_that_fails(x);
    expect_error(ErrorCode::Cuda, kWords, [] { compute().synchronize(); });
    expect_error(ErrorCode::Cuda, kWords, [&] { graph.run(step); });
  }
  emulated_gpu::clear_faults();
  EXPECT_EQ(values_of(Tensor::full({10}, 1, DType::float32, kFirst)), std::vector<float>(10, 1));
}

TEST_F(KernelFailures, OfOneGpuAreNotAnothers) {
  if (logical_device(kOther).gpu() == 0) GTEST_SKIP() << "needs 2 GPUs, found 1";
  logical_device(kFirst);  // in use before: a GPU that failed cannot be connected with any more
  launch_kernel_that_fails(Tensor::empty({10}, DType::float32, kOther));
  expect_error(ErrorCode::Cuda, kWords, [] { compute(kOther).synchronize(); });
  EXPECT_EQ(values_of(Tensor::full({10}, 1, DType::float32, kFirst)), std::vector<float>(10, 1));
}

// The fixture's SetUp would come before the variable is set.
TEST(BlockingLaunches, NameTheOperationWhoseKernelFailed) {
  EXPECT_IN_NEW_PROCESS({
    setenv("LOCKSTEP_CUDA_BLOCKING", "1", 1);
    const Tensor x = Tensor::zeros({100}, DType::float32, kFirst);
    emulated_gpu::fail_next_kernel(cuda::cuda_stream(compute()).handle());
    expect_error(ErrorCode::Cuda, std::string("[fill] its CUDA kernel failed: ") + kWords,
                 [&] { x.fill(1); });
  });
}

}  // namespace
}  // namespace lockstep::runtime
