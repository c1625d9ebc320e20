// Products of a library that refuses algorithms: on the emulated GPU, whose cuBLASLt can be told
// to.
#include <gmock/gmock.h>

#include "engine/runtime/cuda/cuda_stream.h"
#include "engine/runtime/step_graph.h"
#include "gpu_test.h"
#include "kernels/cuda/product.h"
#include "kernels/matmul_precision.h"
#include "tests/emulated_gpu/control.h"
#include "tests/emulated_gpu/cublas_lt/control.h"
#include "tests/kernels/layer_reference.h"

namespace lockstep::kernels::cuda {
namespace {

using emulated_gpu::cublas_lt::refuse;
using emulated_gpu::cublas_lt::refuse_nothing;
using emulated_gpu::cublas_lt::Refused;

constexpr std::int64_t kIds[] = {10, 66, 11, 12};  // all algorithms
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
    set_matmul_precision(MatmulPrecision::highest);
  }
};

void expect_right_layer() {
  expect_layer(Layer<float>({16, 8, 12}), 1e-5);
}

TEST_F(RefusedProducts, WhateverStatusAnAlgorithmGivesAnotherIsTaken) {
  for (const Refused what : {Refused::product, Refused::configuration}) {
    for (const cublasStatus_t status : kStatuses) {
      SCOPED_TRACE(::testing::Message() << int(what) << ", status " << int(status));
      forget_products();
      for (const std::int64_t id : kIds) {
        if (id != 12) refuse(what, id, status);
      }
      expect_right_layer();
    }
    refuse_nothing();
  }
}

TEST_F(RefusedProducts, AKernelOfOursAddsARefusedBias) {
  for (const cublasStatus_t status : kStatuses) {
    SCOPED_TRACE(int(status));
    forget_products();
    refuse(Refused::heuristic, CUBLASLT_EPILOGUE_BIAS, status);
    expect_right_layer();
  }
}

// A layer of bfloat16 rows, and what its GELU keeps.
std::vector<float> half_layer(Activation activation, std::size_t out) {
  const auto half = [](const Shape& shape, std::uint64_t seed) {
    const auto values = random_values<float>(shape.num_elements(), seed);
    return Tensor::from(values, shape, Device{}).to(DType::bfloat16).to(test_device());
  };
  const Tensor x = half({16, 8}, 1), weight = half({out, 8}, 2), y = half({16, out}, 3);
  const Tensor z = y.clone();
  // Bucket slices lie like this bias.
  const OnDevice<float> bias(random_values<float>(out, 4), 1);
  tested().linear_forward(stream(),
                          {x.matrix(), weight.matrix(), bias.view(), activation, y.matrix(),
                           needs_preactivation(activation) ? z.matrix() : MatrixView{}});
  auto results = y.to_vector<float>();
  if (!needs_preactivation(activation)) return results;
  for (const float value : z.to_vector<float>()) results.push_back(value);
  return results;
}

TEST_F(RefusedProducts, TheLibraryFinishesBfloat16LayersOrAKernelOfOursDoes) {
  for (const auto& [activation, epilogue] :
       {std::pair{Activation::none, CUBLASLT_EPILOGUE_BIAS},
        {Activation::relu, CUBLASLT_EPILOGUE_RELU_BIAS},
        {Activation::gelu_tanh, CUBLASLT_EPILOGUE_GELU_AUX_BIAS}}) {
    SCOPED_TRACE(int(epilogue));
    forget_products();
    refuse(Refused::heuristic, CUBLASLT_EPILOGUE_DEFAULT, CUBLAS_STATUS_NOT_SUPPORTED);
    const auto by_library = half_layer(activation, 24);
    refuse_nothing();
    forget_products();
    refuse(Refused::heuristic, epilogue, CUBLAS_STATUS_NOT_SUPPORTED);
    const auto by_kernel = half_layer(activation, 24);
    refuse_nothing();
    for (std::size_t i = 0; i < by_kernel.size(); ++i) {
      EXPECT_NEAR(by_library[i], by_kernel[i], 0x1p-7 * std::max(1.0f, std::abs(by_kernel[i])));
    }
  }
  // The library keeps no preactivation in rows that are not whole vectors, and knows no other GELU.
  refuse(Refused::heuristic, CUBLASLT_EPILOGUE_DEFAULT, CUBLAS_STATUS_NOT_SUPPORTED);
  expect_error(ErrorCode::Cuda, "none of its algorithms",
               [] { half_layer(Activation::gelu_tanh, 12); });
  expect_error(ErrorCode::Cuda, "none of its algorithms",
               [] { half_layer(Activation::gelu_erf, 24); });
}

TEST_F(RefusedProducts, WithoutAnAlgorithmSayWhereToLook) {
  for (const std::int64_t id : kIds) {
    refuse(Refused::product, id, CUBLAS_STATUS_EXECUTION_FAILED);
  }
  expect_error(ErrorCode::Cuda,
               "runs none of its algorithms for [16, 12] x 8 in float32; LOCKSTEP_LOG=debug says "
               "why",
               expect_right_layer);
}

// The library offers nothing but algorithms that would lose a part of these sums.
TEST_F(RefusedProducts, DeepBfloat16ProductsOfFewResultsAreRight) {
  set_matmul_precision(MatmulPrecision::bf16);
  // As the gradients of a convolution's weights: transposed, and added to those of earlier images.
  for (const std::size_t depth : {4096, 12544, 6517, 999}) {
    for (const std::size_t cols : {24, 9, 1}) {
      SCOPED_TRACE(::testing::Message() << "[8, " << cols << "] x " << depth);
      const SomeProduct product(8, cols, depth, Transpose::yes);
      product.run();
      EXPECT_LE(product.error(), 1e-2);
      EXPECT_GE(product.error(), 1e-4) << "a product of float32";
      const auto once = product.result();
      product.run(Write::accumulate);
      const auto twice = product.result();
      for (std::size_t i = 0; i < once.size(); ++i) EXPECT_NEAR(twice[i], 2 * once[i], 1e-2);
    }
  }
}

TEST_F(RefusedProducts, AFloat32ProductReplacesAMissingBfloat16One) {
  set_matmul_precision(MatmulPrecision::bf16);
  refuse(Refused::factors, CUDA_R_16BF, CUBLAS_STATUS_NOT_SUPPORTED);
  const SomeProduct product(16, 12, 40);
  product.run();
  EXPECT_LE(product.error(), 1e-5);
  refuse_nothing();  // what was missing once is not asked for again
  product.run();
  EXPECT_LE(product.error(), 1e-5);
}

TEST_F(RefusedProducts, OfBfloat16OperandsAreMadeOfFloat32Copies) {
  const auto matrix = [](const Shape& shape, std::uint64_t seed) {
    const auto values = random_values<float>(shape.num_elements(), seed);
    return Tensor::from(values, shape, Device{}).to(DType::bfloat16).to(test_device());
  };
  const Tensor a = matrix({5, 7}, 1), b = matrix({7, 3}, 2);
  const OnDevice<float> bias(random_values<float>(3, 4));
  const auto run = [&] {
    const Tensor sum = matrix({5, 3}, 3), layer = matrix({5, 3}, 3);
    tested().matmul(stream(), {a.matrix(), Transpose::no, b.matrix(), Transpose::no, sum.matrix(),
                               Write::accumulate});
    tested().linear_forward(stream(), {.x = a.matrix(),
                                       .weight = b.reshape({3, 7}).matrix(),
                                       .bias = bias.view(),
                                       .activation = Activation::relu,
                                       .y = layer.matrix(),
                                       .preactivation = {}});
    auto results = sum.to_vector<float>();
    for (const float value : layer.to_vector<float>()) results.push_back(value);
    return results;
  };
  const auto direct = run();
  forget_products();
  refuse(Refused::factors, CUDA_R_16BF, CUBLAS_STATUS_NOT_SUPPORTED);
  const auto of_copies = run();
  for (std::size_t i = 0; i < direct.size(); ++i) {
    EXPECT_NEAR(of_copies[i], direct[i], 0x1p-7 * std::max(1.0f, std::abs(direct[i])));
  }
}

// The gradients of a layer with bfloat16 rows: the same values on each device.
struct Gradients {
  Device device;
  std::size_t out;
  Tensor x = half({16, 8}, 1), grad_z = half({16, out}, 2), grad_x = half({16, 8}, 3);
  Tensor weight = half({out, 8}, 4).to(DType::float32), grad_weight = weight.clone();
  Tensor grad_bias = Tensor::zeros({out}, DType::float32, device);

  Tensor half(const Shape& shape, std::uint64_t seed) const {
    const auto values = random_values<float>(shape.num_elements(), seed);
    return Tensor::from(values, shape, Device{}).to(DType::bfloat16).to(device);
  }
  void run() {
    x.backend().linear_backward(x.stream(),
                                {x.matrix(), weight.matrix(), grad_z.matrix(), grad_x.matrix(),
                                 grad_weight.matrix(), grad_bias.view()});
  }
  // The results, which the next step must make again.
  std::vector<float> take() {
    std::vector<float> results;
    for (Tensor* const one : {&grad_x, &grad_weight, &grad_bias}) {
      for (const float value : one->to_vector<float>()) results.push_back(value);
      one->fill(kNaN);
    }
    return results;
  }
};

// They run side by side where their products need no copies: not in the first step, not with rows
// of 7, and not where the library has no bfloat16 products.
TEST_F(RefusedProducts, GradientsInAGraphAreRight) {
  set_matmul_precision(MatmulPrecision::bf16);
  struct Case {
    std::size_t out;
    cublasStatus_t status;
  };
  for (const auto& [out, status] : {Case{24, CUBLAS_STATUS_SUCCESS},
                                    {7, CUBLAS_STATUS_SUCCESS},
                                    {24, CUBLAS_STATUS_NOT_SUPPORTED}}) {
    SCOPED_TRACE(::testing::Message() << out << " features, status " << int(status));
    forget_products();
    refuse(Refused::factors, CUDA_R_16BF, status);
    Gradients reference{Device{}, out}, gradients{test_device(), out};
    reference.run();
    const auto expected = reference.take();
    runtime::StepGraph graph({test_device()});
    for (std::size_t i = 0; i < runtime::StepGraph::kNumWarmUps + 2; ++i) {
      graph.run([&] { gradients.run(); });
      const auto found = gradients.take();
      for (std::size_t j = 0; j < found.size(); ++j) EXPECT_NEAR(found[j], expected[j], 0.05) << j;
    }
  }
}

TEST_F(RefusedProducts, OfAFailedGpuAreAnError) {
  const GridOnDevice<double> x(16, 16), weight(16, 16), y(16, 16);
  const OnDevice<double> bias(16);
  // The library adds no bias in float64, so a kernel of ours is timed, too.
  const auto compute = [&] {
    tested().linear_forward(stream(),
                            {x.view(), weight.view(), bias.view(), Activation::none, y.view(), {}});
  };
  compute();
  forget_products();
  emulated_gpu::fail_next_kernel(runtime::cuda::cuda_stream(stream()).handle());
  expect_error(ErrorCode::Cuda, "illegal memory access", compute);
  emulated_gpu::clear_faults();
}

}  // namespace
}  // namespace lockstep::kernels::cuda
