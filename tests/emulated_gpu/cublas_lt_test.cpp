// The emulated cublasLtMatmul against plain loops over column-major matrices, in double.
#include <cublasLt.h>

#include <cmath>
#include <random>

#include "tests/emulated_gpu/test_support.h"

namespace emulated_gpu::testing {
namespace {

constexpr std::size_t kM = 19, kN = 11, kK = 9;
constexpr std::int64_t kExtraRows = 3;  // between the columns of each matrix

#define EXPECT_CUBLAS(expected, ...) EXPECT_EQ(__VA_ARGS__, expected)
#define EXPECT_LT_OK(...) EXPECT_CUBLAS(CUBLAS_STATUS_SUCCESS, __VA_ARGS__)

template <typename T>
constexpr cudaDataType_t kType = CUDA_R_32F;
template <>
constexpr cudaDataType_t kType<double> = CUDA_R_64F;

// A column-major matrix on the GPU and the numbers in it.
template <typename T>
struct Matrix {
  Matrix(std::size_t num_rows, std::size_t num_cols, unsigned seed)
      : rows(num_rows),
        cols(num_cols),
        ld(num_rows + kExtraRows),
        host(random(ld * cols, seed)),
        gpu(host) {
    EXPECT_LT_OK(
        cublasLtMatrixLayoutCreate(&layout, kType<T>, rows, cols, static_cast<std::int64_t>(ld)));
  }
  ~Matrix() { cublasLtMatrixLayoutDestroy(layout); }
  static std::vector<T> random(std::size_t size, unsigned seed) {
    std::mt19937 generator(seed);
    std::uniform_real_distribution<double> numbers(-1, 1);
    std::vector<T> result(size);
    for (T& value : result) value = static_cast<T>(numbers(generator));
    return result;
  }
  double at(std::size_t i, std::size_t j) const { return static_cast<double>(host[j * ld + i]); }
  double at(cublasOperation_t op, std::size_t i, std::size_t j) const {
    return op == CUBLAS_OP_N ? at(i, j) : at(j, i);
  }

  std::size_t rows, cols, ld;
  std::vector<T> host;
  Array<T> gpu;
  cublasLtMatrixLayout_t layout = nullptr;
};

// D = epilogue(alpha * op(A) * op(B) + beta * C), through every call that takes part.
template <typename T>
struct Problem {
  explicit Problem(cublasOperation_t op_a = CUBLAS_OP_N, cublasOperation_t op_b = CUBLAS_OP_N,
                   cublasComputeType_t compute = kType<T> == CUDA_R_64F ? CUBLAS_COMPUTE_64F
                                                                        : CUBLAS_COMPUTE_32F)
      : operation_a(op_a),
        operation_b(op_b),
        a(op_a == CUBLAS_OP_N ? kM : kK, op_a == CUBLAS_OP_N ? kK : kM, 1),
        b(op_b == CUBLAS_OP_N ? kK : kN, op_b == CUBLAS_OP_N ? kN : kK, 2),
        c(kM, kN, 3),
        d(kM, kN, 4) {
    EXPECT_LT_OK(cublasLtCreate(&handle));
    EXPECT_LT_OK(cublasLtMatmulDescCreate(&operation, compute, kType<T>));
    EXPECT_LT_OK(cublasLtMatmulPreferenceCreate(&preference));
    set(CUBLASLT_MATMUL_DESC_TRANSA, op_a);
    set(CUBLASLT_MATMUL_DESC_TRANSB, op_b);
  }
  ~Problem() {
    cublasLtMatmulPreferenceDestroy(preference);
    cublasLtMatmulDescDestroy(operation);
  }

  template <typename Value>
  void set(cublasLtMatmulDescAttributes_t attribute, Value value) {
    EXPECT_LT_OK(cublasLtMatmulDescSetAttribute(operation, attribute, &value, sizeof(value)));
  }
  void set_epilogue(cublasLtEpilogue_t epilogue, void* bias) {
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
    set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
  }

  cublasStatus_t find(std::vector<cublasLtMatmulHeuristicResult_t>& found) {
    found.resize(8);
    int num_found = 0;
    const cublasStatus_t status =
        cublasLtMatmulAlgoGetHeuristic(handle, operation, a.layout, b.layout, c.layout, d.layout,
                                       preference, 8, found.data(), &num_found);
    found.resize(static_cast<std::size_t>(num_found));
    return status;
  }
  cublasStatus_t multiply(const cublasLtMatmulAlgo_t* algorithm = nullptr,
                          void* workspace = nullptr, std::size_t num_workspace_bytes = 0) {
    return cublasLtMatmul(handle, operation, &alpha, a.gpu.data(), a.layout, b.gpu.data(), b.layout,
                          &beta, c.gpu.data(), c.layout, d.gpu.data(), d.layout, algorithm,
                          workspace, num_workspace_bytes, stream);
  }
  std::vector<T> result() {
    stream.wait();
    return d.gpu.values();
  }

  // Before the epilogue.
  double expected(std::size_t i, std::size_t j) const {
    double sum = 0;
    for (std::size_t l = 0; l < kK; ++l) sum += a.at(operation_a, i, l) * b.at(operation_b, l, j);
    return static_cast<double>(alpha) * sum + static_cast<double>(beta) * c.at(i, j);
  }
  template <typename Expected>
  void expect_result(Expected value, double tolerance = 1e-5) {
    const std::vector<T> found = result();
    for (std::size_t j = 0; j < kN; ++j) {
      for (std::size_t i = 0; i < kM; ++i) {
        EXPECT_NEAR(static_cast<double>(found[j * d.ld + i]), value(i, j), tolerance)
            << i << ' ' << j;
      }
      for (std::size_t i = kM; i < d.ld; ++i) EXPECT_EQ(found[j * d.ld + i], d.host[j * d.ld + i]);
    }
  }

  cublasOperation_t operation_a, operation_b;
  Stream stream;
  Matrix<T> a, b, c, d;
  T alpha = 1, beta = 0;
  cublasLtHandle_t handle = nullptr;
  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatmulPreference_t preference = nullptr;
};

template <typename T>
class CublasLt : public ::testing::Test {};
using Types = ::testing::Types<float, double>;
TYPED_TEST_SUITE(CublasLt, Types);

TYPED_TEST(CublasLt, MultipliesTransposedOrNotAndAddsC) {
  for (const cublasOperation_t op_a : {CUBLAS_OP_N, CUBLAS_OP_T}) {
    for (const cublasOperation_t op_b : {CUBLAS_OP_N, CUBLAS_OP_T}) {
      Problem<TypeParam> problem(op_a, op_b);
      problem.alpha = static_cast<TypeParam>(1.5);
      problem.beta = static_cast<TypeParam>(-0.5);
      EXPECT_LT_OK(problem.multiply());
      problem.expect_result([&](std::size_t i, std::size_t j) { return problem.expected(i, j); });
    }
  }
}

TEST(CublasLtBatch, StridesBetweenMatricesMayBeZero) {
  Problem<float> problem;
  const std::int32_t count = 3;
  const auto set_batch = [&](cublasLtMatrixLayout_t layout, std::int64_t stride) {
    EXPECT_LT_OK(cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT,
                                                  &count, sizeof(count)));
    EXPECT_LT_OK(cublasLtMatrixLayoutSetAttribute(
        layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof(stride)));
  };
  const std::size_t size_a = problem.a.host.size(), size_d = problem.d.host.size();
  const Array<float> a(Matrix<float>::random(3 * size_a, 9)), d(3 * size_d);
  set_batch(problem.a.layout, static_cast<std::int64_t>(size_a));
  set_batch(problem.b.layout, 0);
  set_batch(problem.c.layout, 0);
  set_batch(problem.d.layout, static_cast<std::int64_t>(size_d));
  EXPECT_LT_OK(cublasLtMatmul(problem.handle, problem.operation, &problem.alpha, a.data(),
                              problem.a.layout, problem.b.gpu.data(), problem.b.layout,
                              &problem.beta, problem.c.gpu.data(), problem.c.layout, d.data(),
                              problem.d.layout, nullptr, nullptr, 0, problem.stream));
  const std::vector<float> values = a.values(), found = d.values();
  for (std::size_t batch = 0; batch < 3; ++batch) {
    double sum = 0;
    for (std::size_t l = 0; l < kK; ++l) {
      sum +=
          static_cast<double>(values[batch * size_a + l * problem.a.ld + 2]) * problem.b.at(l, 5);
    }
    EXPECT_NEAR(static_cast<double>(found[batch * size_d + 5 * problem.d.ld + 2]), sum, 1e-5);
  }
}

TEST(CublasLtEpilogue, BiasHasAnEntryPerRow) {
  Problem<float> problem;
  const std::vector<float> bias = Matrix<float>::random(kM, 5);
  const Array<float> on_gpu(bias);
  problem.set_epilogue(CUBLASLT_EPILOGUE_BIAS, on_gpu.data());
  EXPECT_LT_OK(problem.multiply());
  problem.expect_result(
      [&](std::size_t i, std::size_t j) { return problem.expected(i, j) + double{bias[i]}; });
}

TEST(CublasLtSupport, IsRefusedWhereTheDocumentationSaysSo) {
  std::vector<cublasLtMatmulHeuristicResult_t> found;
  const Array<char> memory(64 * 1024);
  {
    Problem<double> problem;
    problem.set_epilogue(CUBLASLT_EPILOGUE_BIAS, memory.data());
    EXPECT_CUBLAS(CUBLAS_STATUS_NOT_SUPPORTED, problem.find(found));
    EXPECT_TRUE(found.empty());
    EXPECT_CUBLAS(CUBLAS_STATUS_NOT_SUPPORTED, problem.multiply());
  }
  Problem<float> problem;
  problem.set_epilogue(CUBLASLT_EPILOGUE_BIAS, nullptr);
  EXPECT_CUBLAS(CUBLAS_STATUS_INVALID_VALUE, problem.multiply());
  problem.set_epilogue(CUBLASLT_EPILOGUE_DEFAULT, nullptr);
  EXPECT_LT_OK(problem.find(found));
  problem.set(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);  // the shapes no longer fit
  EXPECT_CUBLAS(CUBLAS_STATUS_INVALID_VALUE, problem.find(found));
  const std::int32_t half_as_long = 1;
  EXPECT_CUBLAS(CUBLAS_STATUS_INVALID_VALUE,
                cublasLtMatmulDescSetAttribute(problem.operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                                               &half_as_long, sizeof(half_as_long)));
}

TEST(CublasLtSupport, AlgorithmsDifferInWhatTheyAskForAndHowTheyRound) {
  const std::size_t depth = 4096;
  const Matrix<float> a(16, depth, 1), b(depth, 1, 2);
  const Array<float> d(16);
  const Array<char> workspace(1 << 20);
  const Stream stream;
  cublasLtHandle_t handle = nullptr;
  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatrixLayout_t layout_a = nullptr, layout_b = nullptr, layout_d = nullptr;
  cublasLtMatmulPreference_t preference = nullptr;
  EXPECT_LT_OK(cublasLtCreate(&handle));
  EXPECT_LT_OK(cublasLtMatmulDescCreate(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  EXPECT_LT_OK(cublasLtMatrixLayoutCreate(&layout_a, CUDA_R_32F, 16, depth, 16));
  EXPECT_LT_OK(cublasLtMatrixLayoutCreate(&layout_b, CUDA_R_32F, depth, 1, depth));
  EXPECT_LT_OK(cublasLtMatrixLayoutCreate(&layout_d, CUDA_R_32F, 16, 1, 16));
  EXPECT_LT_OK(cublasLtMatmulPreferenceCreate(&preference));
  const std::uint64_t num_workspace_bytes = workspace.num_bytes();
  EXPECT_LT_OK(
      cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                           &num_workspace_bytes, sizeof(num_workspace_bytes)));
  std::vector<cublasLtMatmulHeuristicResult_t> found(8);
  int num_found = 0;
  EXPECT_LT_OK(cublasLtMatmulAlgoGetHeuristic(handle, operation, layout_a, layout_b, layout_d,
                                              layout_d, preference, 8, found.data(), &num_found));
  ASSERT_EQ(num_found, 4);
  const float one = 1, zero = 0;
  const auto multiply = [&](const cublasLtMatmulHeuristicResult_t& result, const float* from,
                            void* memory) {
    return cublasLtMatmul(handle, operation, &one, from, layout_a, b.gpu.data(), layout_b, &zero,
                          d.data(), layout_d, d.data(), layout_d, &result.algo, memory,
                          memory == nullptr ? 0 : result.workspaceSize, stream);
  };
  EXPECT_GT(found[0].workspaceSize, 0);
  EXPECT_CUBLAS(CUBLAS_STATUS_INVALID_VALUE, multiply(found[0], a.gpu.data(), nullptr));
  EXPECT_CUBLAS(CUBLAS_STATUS_NOT_SUPPORTED,
                multiply(found[0], a.gpu.data() + 1, workspace.data()));
  EXPECT_LT_OK(multiply(found[2], a.gpu.data() + 1, nullptr));
  EXPECT_LT_OK(multiply(found[0], a.gpu.data(), workspace.data()));
  const std::vector<float> first = d.values();
  EXPECT_LT_OK(multiply(found[2], a.gpu.data(), workspace.data()));
  EXPECT_NE(d.values(), first);
  EXPECT_LT_OK(multiply(found[0], a.gpu.data(), workspace.data()));
  EXPECT_EQ(d.values(), first);
  cublasLtMatmulPreferenceDestroy(preference);
  cublasLtMatrixLayoutDestroy(layout_a);
  cublasLtMatrixLayoutDestroy(layout_b);
  cublasLtMatrixLayoutDestroy(layout_d);
  cublasLtMatmulDescDestroy(operation);
}

TEST(CublasLtPrecision, FastTypesRoundTheFactors) {
  const auto largest_error = [](cublasComputeType_t compute) {
    Problem<float> problem(CUBLAS_OP_N, CUBLAS_OP_N, compute);
    EXPECT_LT_OK(problem.multiply());
    const std::vector<float> found = problem.result();
    double error = 0;
    for (std::size_t j = 0; j < kN; ++j) {
      for (std::size_t i = 0; i < kM; ++i) {
        error =
            std::max(error, std::abs(double{found[j * problem.d.ld + i]} - problem.expected(i, j)));
      }
    }
    return error;
  };
  EXPECT_LT(largest_error(CUBLAS_COMPUTE_32F), 1e-6);
  EXPECT_GT(largest_error(CUBLAS_COMPUTE_32F_FAST_TF32), 1e-5);
  EXPECT_LT(largest_error(CUBLAS_COMPUTE_32F_FAST_TF32), 2e-3);
  EXPECT_GT(largest_error(CUBLAS_COMPUTE_32F_FAST_16BF), 2e-3);
  EXPECT_LT(largest_error(CUBLAS_COMPUTE_32F_FAST_16BF), 2e-2);
}

TEST(CublasLtGraph, KeepsItsScalars) {
  Problem<float> problem;
  EXPECT_OK(cudaStreamBeginCapture(problem.stream, cudaStreamCaptureModeGlobal));
  EXPECT_LT_OK(problem.multiply());
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  EXPECT_OK(cudaStreamEndCapture(problem.stream, &graph));
  EXPECT_OK(cudaGraphInstantiate(&exec, graph, 0));
  problem.alpha = 5;  // was read when the product was captured
  EXPECT_OK(cudaGraphLaunch(exec, problem.stream));
  problem.stream.wait();
  problem.alpha = 1;
  problem.expect_result([&](std::size_t i, std::size_t j) { return problem.expected(i, j); });
  EXPECT_OK(cudaGraphExecDestroy(exec));
  EXPECT_OK(cudaGraphDestroy(graph));
}

}  // namespace
}  // namespace emulated_gpu::testing
