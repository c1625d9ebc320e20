// What the tuner makes of a library that refuses, and of a GPU that was idle: on the emulated GPU,
// whose cuBLASLt can be told to.
#include <gmock/gmock.h>

#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>

#include "engine/core/log.h"
#include "engine/runtime/cuda/cuda_stream.h"
#include "gpu_products.h"
#include "kernels/cuda/epilogues.h"
#include "kernels/cuda/product_timing.h"
#include "kernels/cuda/tuner.h"
#include "kernels/matmul_tuning.h"
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
    ::unsetenv("LOCKSTEP_TUNING_CACHE");
    forget_tuning();
  }
  void TearDown() override {
    emulated_gpu::clear_faults();
    refuse_nothing();
    forget_tuning();
    ::unsetenv("LOCKSTEP_EPILOGUES");
  }
};

// A layer with a bias and ReLU, and its gradients, beside the CPU's.
class SomeLayer {
 public:
  void expect_equal_to_cpu() {
    GridOnGpu<float> x(x_), weight(weight_), y(Grid<float>(kRows, kOut)), grad(y_grad_);
    GridOnGpu<float> x_grad(Grid<float>(kRows, kIn)), weight_grad(Grid<float>(kOut, kIn));
    OnGpu<float> bias(bias_), bias_grad(kOut);
    gpu().linear_forward(gpu_stream(), {.x = x.view(),
                                        .weight = weight.view(),
                                        .bias = bias.view(),
                                        .y = y.view(),
                                        .activation = Activation::relu,
                                        .preactivation = {}});
    gpu().linear_backward(gpu_stream(), {.x = x.view(),
                                         .weight = weight.view(),
                                         .y = {},
                                         .preactivation = {},
                                         .grad_y = grad.view(),
                                         .scratch = {},
                                         .grad_x = x_grad.view(),
                                         .grad_weight = weight_grad.view(),
                                         .grad_bias = bias_grad.view()});
    auto x2 = in_double(x_), weight2 = in_double(weight_), grad2 = in_double(y_grad_);
    auto bias2 = in_double(bias_);
    Grid<double> y3(kRows, kOut), x_grad2(kRows, kIn), weight_grad2(kOut, kIn);
    Array<double> bias_grad2(kOut);
    cpu().linear_forward(cpu_stream(), {.x = x2.view(),
                                        .weight = weight2.view(),
                                        .bias = bias2.view(),
                                        .y = y3.view(),
                                        .activation = Activation::relu,
                                        .preactivation = {}});
    cpu().linear_backward(cpu_stream(), {.x = x2.view(),
                                         .weight = weight2.view(),
                                         .y = {},
                                         .preactivation = {},
                                         .grad_y = grad2.view(),
                                         .scratch = {},
                                         .grad_x = x_grad2.view(),
                                         .grad_weight = weight_grad2.view(),
                                         .grad_bias = bias_grad2.view()});
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
      forget_tuning();
      for (const std::int64_t id : kIds) {
        if (id != 12) refuse(what, id, status);
      }
      SomeLayer().expect_equal_to_cpu();
    }
    refuse_nothing();
  }
}

TEST_F(RefusedProducts, WhateverStatusAnEpilogueGivesKernelsOfOursDoItsWork) {
  for (const cublasStatus_t status : kStatuses) {
    SCOPED_TRACE(int(status));
    forget_tuning();
    for (const std::int64_t epilogue : {CUBLASLT_EPILOGUE_RELU_BIAS, CUBLASLT_EPILOGUE_BGRADB}) {
      refuse(Refused::heuristic, epilogue, status);
    }
    SomeLayer().expect_equal_to_cpu();
  }
}

TEST_F(RefusedProducts, TheLogSaysWhatBecameOfEachEpilogue) {
  refuse(Refused::heuristic, CUBLASLT_EPILOGUE_RELU_BIAS, CUBLAS_STATUS_NOT_SUPPORTED);
  refuse(Refused::product, kIds[0], CUBLAS_STATUS_EXECUTION_FAILED);
  const LogLevel usual = log_level();
  set_log_level(LogLevel::debug);
  ::testing::internal::CaptureStderr();
  SomeLayer().expect_equal_to_cpu();
  const std::string text = ::testing::internal::GetCapturedStderr();
  set_log_level(usual);
  EXPECT_THAT(text,
              ::testing::ContainsRegex("epilogues of linear .16, 12. x 8: 6: 0 found, 0 refused; "
                                       "1: [1-9] found, 1 refused, [0-9.]+ us"));
}

TEST_F(RefusedProducts, WithoutAnyAlgorithmLeftTheErrorSaysWhereToLook) {
  for (const std::int64_t id : kIds) {
    refuse(Refused::product, id, CUBLAS_STATUS_EXECUTION_FAILED);
  }
  expect_error(ErrorCode::Cuda,
               "cuBLASLt runs none of its algorithms for this product; "
               "LOCKSTEP_LOG=debug says why",
               [] { SomeLayer().expect_equal_to_cpu(); });
}

TEST_F(RefusedProducts, OfAGpuThatHasFailedAreAnErrorAndNoRefusal) {
  const Grid<float> zeros(16, 16);
  GridOnGpu<float> a(zeros), b(zeros), c(zeros);
  // No epilogue has this activation, so a kernel of ours is timed, too.
  const auto compute = [&] {
    gpu().linear_forward(gpu_stream(), {.x = a.view(),
                                        .weight = b.view(),
                                        .bias = {},
                                        .y = c.view(),
                                        .activation = Activation::tanh,
                                        .preactivation = {}});
  };
  compute();
  forget_tuning();
  emulated_gpu::fail_next_kernel(runtime::cuda::cuda_stream(timing_stream(gpu_stream())).handle());
  expect_error(ErrorCode::Cuda, "illegal memory access", compute);
  emulated_gpu::clear_faults();
}

TEST_F(RefusedProducts, TheEnvironmentLeavesOutEpilogues) {
  const auto num_kernels = [] {
    forget_tuning();
    const UntunedScope untuned;  // takes what does most
    SomeLayer layer;
    layer.expect_equal_to_cpu();
    emulated_gpu::reset_counters();
    layer.expect_equal_to_cpu();
    return emulated_gpu::counters().num_kernels;
  };
  const std::size_t with_all = num_kernels();
  ::setenv("LOCKSTEP_EPILOGUES", "all", 1);
  EXPECT_EQ(num_kernels(), with_all);
  ::setenv("LOCKSTEP_EPILOGUES", "forward", 1);
  EXPECT_EQ(num_kernels(), with_all + 1) << "the bias gradient";
  ::setenv("LOCKSTEP_EPILOGUES", "off", 1);
  EXPECT_EQ(num_kernels(), with_all + 2) << "and bias with ReLU";
  ::setenv("LOCKSTEP_EPILOGUES", "none", 1);
  expect_error(ErrorCode::Usage, "[LOCKSTEP_EPILOGUES] is 'none'; use all, forward or off",
               [&] { num_kernels(); });
}

TEST_F(RefusedProducts, ABiasGradientIsSummedAboveWhereItsOwnProductCannot) {
  constexpr std::size_t kRows = 16, kIn = 8, kHidden = 12, kOut = 5;
  const auto grid = [](std::size_t rows, std::size_t cols) {
    return std::make_unique<GridOnGpu<float>>(random_grid<float>(rows, cols, 0, 1));
  };
  const auto x = grid(kRows, kIn), hidden = grid(kRows, kHidden), grad_y = grid(kRows, kOut);
  const auto weight = grid(kHidden, kIn), weight_above = grid(kOut, kHidden);
  const auto grad_hidden = grid(kRows, kHidden);
  const OnGpu<std::uint8_t> mask(Array<std::uint8_t>(relu_mask_bytes(kRows, kHidden), 0xff));
  LinearBackward above, before;
  above.x = hidden->view();
  above.weight = weight_above->view();
  above.grad_y = grad_y->view();
  above.grad_x = grad_hidden->view();
  above.input_activation = Activation::relu;
  above.input_mask = mask.view();
  before.x = x->view();
  before.weight = weight->view();
  before.grad_weight = matrix_view(static_cast<void*>(nullptr), DType::float32, kHidden, kIn);
  before.grad_bias = {nullptr, DType::float32, kHidden};
  const auto is_summed_above = [&] {
    forget_tuning();
    const UntunedScope untuned;
    return gpu().sums_input_gradient(gpu_stream(), above, before);
  };
  EXPECT_FALSE(is_summed_above());
  refuse(Refused::heuristic, CUBLASLT_EPILOGUE_BGRADB, CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_TRUE(is_summed_above());
  refuse(Refused::heuristic, CUBLASLT_EPILOGUE_DRELU_BGRAD, CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_FALSE(is_summed_above());
  refuse_nothing();
  above.input_activation = Activation::tanh;  // of which there is no such epilogue
  EXPECT_FALSE(is_summed_above());
  above.input_activation = Activation::relu;
  forget_tuning();
  gpu().sums_input_gradient(gpu_stream(), above, before);
  EXPECT_EQ(tuning_statistics().num_timed, 4u) << "both products, with the sums and without";
}

TEST_F(RefusedProducts, AnIdleGpuIsKeptBusyBeforeItsTimesCount) {
  const Grid<float> zeros(16, 16);
  GridOnGpu<float> a(zeros), b(zeros), c(zeros);
  Product product;
  product.a = a.view();
  product.b = b.view();
  product.c = c.view();
  const auto plans = candidates(gpu_stream(), product, CUBLASLT_EPILOGUE_DEFAULT, 4);
  ASSERT_GE(plans.size(), 2u);
  ProductTimer timer(gpu_stream(), product);
  const auto num_launches = [&](const ProductPlan& plan) {
    emulated_gpu::reset_counters();
    EXPECT_TRUE(timer.microseconds(plan, std::nullopt));
    return emulated_gpu::counters().num_graph_launches;
  };
  std::this_thread::sleep_for(std::chrono::milliseconds(30));  // long enough to count as idle
  const std::size_t when_idle = num_launches(plans[0]);
  EXPECT_GE(when_idle, 4u + 4u) << "launched several at a time until the clock has risen";
  const std::size_t when_busy = num_launches(plans[1]);
  EXPECT_GE(when_busy, 4u) << "once to know it, then three times";
  EXPECT_LE(when_busy, 1u + 3u * 4u);
}

}  // namespace
}  // namespace lockstep::kernels::cuda
