// The floor of a training step on a GPU: the matrix products that an MLP's step cannot do without,
// each by the fastest algorithm that cuBLASLt offers, with nothing around them.
//
//   gpu_floor highest|high BATCH SIZE SIZE...
//
// prints "products MICROSECONDS NUMBER": their sum, timed in chains of ten inside a CUDA graph, and
// how many they are; and "sgemm TFLOPS": the rate of one large product, the ceiling of a wide net.
#include <cublasLt.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <string>
#include <vector>

namespace {

void check(int status, const char* what) {
  if (status == 0) return;
  std::fprintf(stderr, "gpu_floor: %s failed with %d\n", what, status);
  std::exit(1);
}

constexpr std::size_t kWorkspaceBytes = std::size_t{32} << 20;
constexpr int kChain = 10;
constexpr int kReplays = 20;

__global__ void fill(float* values, std::size_t count) {
  for (std::size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count;
       i += std::size_t{gridDim.x} * blockDim.x) {
    values[i] = static_cast<float>((i * 2654435761u >> 8) & 0xffff) / 65536.0f - 0.5f;
  }
}

float* make_matrix(std::size_t count) {
  float* data = nullptr;
  check(cudaMalloc(&data, count * sizeof(float)), "cudaMalloc");
  fill<<<1024, 256>>>(data, count);
  return data;
}

struct Bench {
  cublasLtHandle_t handle;
  void* workspace;
  cudaStream_t stream;
  cublasComputeType_t compute;

  explicit Bench(cublasComputeType_t type) : compute(type) {
    check(cublasLtCreate(&handle), "cublasLtCreate");
    check(cudaMalloc(&workspace, kWorkspaceBytes), "cudaMalloc");
    check(cudaStreamCreate(&stream), "cudaStreamCreate");
  }

  // Microseconds of one launch() in a graph that holds kChain of them; infinity if it is refused.
  template <typename Launch>
  double time(const Launch& launch) const {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t run = nullptr;
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "capture");
    bool is_refused = false;
    for (int i = 0; i < kChain && !is_refused; ++i) is_refused = launch() != 0;
    check(cudaStreamEndCapture(stream, &graph), "end of capture");
    double best = std::numeric_limits<double>::infinity();
    if (!is_refused) {
      check(cudaGraphInstantiate(&run, graph, 0), "cudaGraphInstantiate");
      cudaEvent_t begin, end;
      cudaEventCreate(&begin);
      cudaEventCreate(&end);
      for (int round = 0; round < 4; ++round) {  // the first one warms up
        cudaEventRecord(begin, stream);
        for (int i = 0; i < kReplays; ++i) cudaGraphLaunch(run, stream);
        cudaEventRecord(end, stream);
        check(cudaEventSynchronize(end), "a product");
        float milliseconds = 0;
        cudaEventElapsedTime(&milliseconds, begin, end);
        if (round > 0) best = std::min(best, 1e3 * milliseconds / (kReplays * kChain));
      }
      cudaEventDestroy(begin);
      cudaEventDestroy(end);
      cudaGraphExecDestroy(run);
    }
    cudaGraphDestroy(graph);
    return best;
  }

  // c [m, n] = op(a) op(b), column-major, inner size k: the fastest of what cuBLASLt offers.
  double product(int m, int n, int k, cublasOperation_t op_a, cublasOperation_t op_b) const {
    float* a = make_matrix(std::size_t(m) * k);
    float* b = make_matrix(std::size_t(k) * n);
    float* c = make_matrix(std::size_t(m) * n);
    cublasLtMatmulDesc_t desc;
    check(cublasLtMatmulDescCreate(&desc, compute, CUDA_R_32F), "cublasLtMatmulDescCreate");
    cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSA, &op_a, sizeof(op_a));
    cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSB, &op_b, sizeof(op_b));
    cublasLtMatrixLayout_t of_a, of_b, of_c;
    const bool flip_a = op_a == CUBLAS_OP_T;
    const bool flip_b = op_b == CUBLAS_OP_T;
    cublasLtMatrixLayoutCreate(&of_a, CUDA_R_32F, flip_a ? k : m, flip_a ? m : k, flip_a ? k : m);
    cublasLtMatrixLayoutCreate(&of_b, CUDA_R_32F, flip_b ? n : k, flip_b ? k : n, flip_b ? n : k);
    cublasLtMatrixLayoutCreate(&of_c, CUDA_R_32F, m, n, m);
    cublasLtMatmulPreference_t preference;
    cublasLtMatmulPreferenceCreate(&preference);
    cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                         &kWorkspaceBytes, sizeof(kWorkspaceBytes));
    cublasLtMatmulHeuristicResult_t offers[16];
    int num_offers = 0;
    check(cublasLtMatmulAlgoGetHeuristic(handle, desc, of_a, of_b, of_c, of_c, preference, 16,
                                         offers, &num_offers),
          "cublasLtMatmulAlgoGetHeuristic");
    double best = std::numeric_limits<double>::infinity();
    for (int i = 0; i < num_offers; ++i) {
      const float one = 1, zero = 0;
      best = std::min(best, time([&] {
                        return cublasLtMatmul(handle, desc, &one, a, of_a, b, of_b, &zero, c, of_c,
                                              c, of_c, &offers[i].algo, workspace, kWorkspaceBytes,
                                              stream);
                      }));
    }
    cublasLtMatmulPreferenceDestroy(preference);
    for (cublasLtMatrixLayout_t layout : {of_a, of_b, of_c}) cublasLtMatrixLayoutDestroy(layout);
    cublasLtMatmulDescDestroy(desc);
    for (float* data : {a, b, c}) cudaFree(data);
    return best;
  }
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5) {
    std::fprintf(stderr, "usage: gpu_floor highest|high BATCH SIZE SIZE...\n");
    return 2;
  }
  const bool is_tf32 = std::string(argv[1]) == "high";
  const Bench bench(is_tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F);
  const int batch = std::atoi(argv[2]);
  const std::vector<std::string> sizes(argv + 3, argv + argc);
  double total = 0;
  int num_products = 0;
  for (std::size_t layer = 0; layer + 1 < sizes.size(); ++layer) {
    const int in = std::stoi(sizes[layer]);
    const int out = std::stoi(sizes[layer + 1]);
    // Row-major matrices are their transposes, column-major: y^T = W x^T, and so on.
    total += bench.product(out, batch, in, CUBLAS_OP_T, CUBLAS_OP_N);  // y = x W^T
    total += bench.product(in, out, batch, CUBLAS_OP_N, CUBLAS_OP_T);  // grad_W = grad_y^T x
    num_products += 2;
    if (layer == 0) continue;  // nobody wants the gradient of the first layer's input
    total += bench.product(in, batch, out, CUBLAS_OP_N, CUBLAS_OP_N);  // grad_x = grad_y W
    ++num_products;
  }
  std::printf("products %.2f %d\n", total, num_products);
  constexpr int kLarge = 8192;
  const double large = bench.product(kLarge, kLarge, kLarge, CUBLAS_OP_N, CUBLAS_OP_N);
  std::printf("sgemm %.2f\n", 2.0 * kLarge * kLarge * kLarge / large * 1e-6);
  return 0;
}
