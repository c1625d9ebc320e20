// Products of a library that refuses algorithms: on the emulated GPU, whose cuBLASLt can be told
// to.
#include <gmock/gmock.h>

#include "engine/runtime/cuda/cuda_stream.h"
#include "gpu_products.h"
#include "kernels/cuda/product.h"
#include "tests/emulated_gpu/control.h"
#include "tests/emulated_gpu/cublas_lt/control.h"
#include "tests/support/expect_error.h"

namespace lockstep::kernels::cuda {
namespace {

using emulated_gpu::cublas_lt::refuse;
using emulated_gpu::cublas_lt::refuse_nothing;
using emulated_gpu::cublas_lt::Refused;
using lockstep::testing::expect_error;

constexpr std::int64_t kIds[] = {10, 66, 11, 12};  // of all algorithms
constexpr cublasStatus_t kStatuses[] = {
    CUBLAS_STATUS_NOT_INITIALIZED, CUBLAS_STATUS_ALLOC_FAILED,  CUBLAS_STATUS_INVALID_VALUE,
    CUBLAS_STATUS_ARCH_MISMATCH,   CUBLAS_STATUS_MAPPING_ERROR, CUBLAS_STATUS_EXECUTION_FAILED,
    CUBLAS_STATUS_INTERNAL_ERROR,  CUBLAS_STATUS_NOT_SUPPORTED, CUBLAS_STATUS_LICENSE_ERROR};

class RefusedProducts : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    forget_products();
  }
  void TearDown() override {
    emulated_gpu::clear_faults();
    refuse_nothing();
    forget_products();
  }
};

// A layer with a bias, and its gradients, beside the CPU's.
class SomeLayer {
 public:
  void expect_equal_to_cpu() {
    GridOnGpu<float> x(x_), weight(weight_), y(Grid<float>(kRows, kOut)), grad(y_grad_);
    GridOnGpu<float> x_grad(Grid<float>(kRows, kIn)), weight_grad(Grid<float>(kOut, kIn));
    OnGpu<float> bias(bias_), bias_grad(kOut);
    gpu().linear_forward(gpu_stream(), x.view(), weight.view(), bias.view(), Activation::none,
                         y.view(), {});
    gpu().linear_backward(gpu_stream(), x.view(), weight.view(), grad.view(), x_grad.view(),
                          weight_grad.view(), bias_grad.view());
    auto x2 = in_double(x_), weight2 = in_double(weight_), grad2 = in_double(y_grad_);
    auto bias2 = in_double(bias_);
    Grid<double> y3(kRows, kOut), x_grad2(kRows, kIn), weight_grad2(kOut, kIn);
    Array<double> bias_grad2(kOut);
    cpu().linear_forward(cpu_stream(), x2.view(), weight2.view(), bias2.view(), Activation::none,
                         y3.view(), {});
    cpu().linear_backward(cpu_stream(), x2.view(), weight2.view(), grad2.view(), x_grad2.view(),
                          weight_grad2.view(), bias_grad2.view());
    EXPECT_LE(relative_error(y.grid().content(), y3.content()), kRelativeError<float>);
    EXPECT_LE(relative_error(x_grad.grid().content(), x_grad2.content()), kRelativeError<float>);
    EXPECT_LE(relative_error(weight_grad.grid().content(), weight_grad2.content()),
              kRelativeError<float>);
    EXPECT_LE(relative_error(bias_grad.values(), bias_grad2.values), kRelativeError<float>);
  }

 private:
  static constexpr std::size_t kRows = 16, kIn = 8, kOut = 12;
  Grid<float> x_ = random_grid<float>(kRows, kIn, 0, 1);
  Grid<float> weight_ = random_grid<float>(kOut, kIn, 0, 2);
  Array<float> bias_ = random_array<float>(kOut, 3);
  Grid<float> y_grad_ = random_grid<float>(kRows, kOut, 0, 4);
};

TEST_F(RefusedProducts, WhateverStatusAnAlgorithmGivesAnotherIsTaken) {
  for (const Refused what : {Refused::product, Refused::configuration}) {
    for (const cublasStatus_t status : kStatuses) {
      SCOPED_TRACE(::testing::Message() << int(what) << ", status " << int(status));
      forget_products();
      for (const std::int64_t id : kIds) {
        if (id != 12) refuse(what, id, status);
      }
      SomeLayer().expect_equal_to_cpu();
    }
    refuse_nothing();
  }
}

TEST_F(RefusedProducts, WhateverStatusTheBiasGivesAKernelOfOursAddsIt) {
  for (const cublasStatus_t status : kStatuses) {
    SCOPED_TRACE(int(status));
    forget_products();
    refuse(Refused::heuristic, CUBLASLT_EPILOGUE_BIAS, status);
    SomeLayer().expect_equal_to_cpu();
  }
}

TEST_F(RefusedProducts, WithoutAnyAlgorithmLeftTheErrorSaysWhereToLook) {
  for (const std::int64_t id : kIds) {
    refuse(Refused::product, id, CUBLAS_STATUS_EXECUTION_FAILED);
  }
  expect_error(ErrorCode::Cuda,
               "runs none of its algorithms for [16, 12] x 8 in float32; LOCKSTEP_LOG=debug says "
               "why",
               [] { SomeLayer().expect_equal_to_cpu(); });
}

TEST_F(RefusedProducts, OfAGpuThatHasFailedAreAnErrorAndNoRefusal) {
  const Grid<double> zeros(16, 16);
  GridOnGpu<double> x(zeros), weight(zeros), y(zeros);
  const OnGpu<double> bias(16);
  // The library adds no bias in float64, so a kernel of ours is timed, too.
  const auto compute = [&] {
    gpu().linear_forward(gpu_stream(), x.view(), weight.view(), bias.view(), Activation::none,
                         y.view(), {});
  };
  compute();
  forget_products();
  emulated_gpu::fail_next_kernel(runtime::cuda::cuda_stream(gpu_stream()).handle());
  expect_error(ErrorCode::Cuda, "illegal memory access", compute);
  emulated_gpu::clear_faults();
}

}  // namespace
}  // namespace lockstep::kernels::cuda
