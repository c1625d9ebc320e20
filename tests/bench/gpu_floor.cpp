// The floor of a training step on a GPU: the matrix products that an MLP's step needs, each by the
// fastest algorithm that cuBLASLt offers, and nothing else.
//
//   gpu_floor products highest|high BATCH SIZE SIZE...
//       prints "products MICROSECONDS NUMBER": their sum, timed in chains of ten inside a CUDA
//       graph, and how many they are
//   gpu_floor sgemm highest|high SIZE
//       prints "sgemm TFLOPS": the rate of one product of square matrices, the ceiling of a wide
//       net
//
// An algorithm is run once, and one that is hopeless then, or that the library refuses, is left
// out; the others get about 20 ms each.
#include <cublasLt.h>
#include <cuda_runtime_api.h>

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
constexpr int kMaxOffers = 16;
constexpr double kMicrosecondsPerAlgorithm = 20e3;
constexpr int kRounds = 3;
constexpr int kLongestChain = 10;
constexpr double kHopeless = 3;  // times the best one so far, in its first run

// Values between -0.5 and 0.5, which repeat after a million.
float* make_matrix(std::size_t count) {
  float* data = nullptr;
  check(cudaMalloc(reinterpret_cast<void**>(&data), count * sizeof(float)), "cudaMalloc");
  std::vector<float> values(std::min(count, std::size_t{1} << 20));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>((i * 2654435761u >> 8) & 0xffff) / 65536.0f - 0.5f;
  }
  for (std::size_t i = 0; i < count; i += values.size()) {
    const std::size_t part = std::min(values.size(), count - i) * sizeof(float);
    check(cudaMemcpy(data + i, values.data(), part, cudaMemcpyHostToDevice), "cudaMemcpy");
  }
  return data;
}

struct Bench {
  cublasLtHandle_t handle;
  void* workspace;
  cudaStream_t stream;
  cudaEvent_t begin, end;
  cublasComputeType_t compute;

  explicit Bench(cublasComputeType_t type) : compute(type) {
    check(cublasLtCreate(&handle), "cublasLtCreate");
    check(cudaMalloc(&workspace, kWorkspaceBytes), "cudaMalloc");
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
    check(cudaEventCreate(&begin), "cudaEventCreate");
    check(cudaEventCreate(&end), "cudaEventCreate");
  }

  // Microseconds that the stream takes for what launch() enqueues.
  template <typename Launch>
  double microseconds(const Launch& launch) const {
    check(cudaEventRecord(begin, stream), "cudaEventRecord");
    launch();
    check(cudaEventRecord(end, stream), "cudaEventRecord");
    check(cudaEventSynchronize(end), "a product");
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, begin, end), "cudaEventElapsedTime");
    return 1e3 * milliseconds;
  }

  // Microseconds of one launch() in a graph of several; infinity where it is refused or hopeless.
  template <typename Launch>
  double time(const Launch& launch, double best) const {
    constexpr double kNever = std::numeric_limits<double>::infinity();
    bool is_refused = launch() != 0;  // also loads its code
    check(cudaStreamSynchronize(stream), "a product");
    if (is_refused) return kNever;
    const double once = microseconds([&] { is_refused = launch() != 0; });
    if (is_refused || once > kHopeless * best + 20) return kNever;
    const int chain = once < 1e3 ? kLongestChain : 1;
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t run = nullptr;
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "capture");
    for (int i = 0; i < chain && !is_refused; ++i) is_refused = launch() != 0;
    check(cudaStreamEndCapture(stream, &graph), "end of capture");
    double fastest = kNever;
    if (!is_refused) {
      check(cudaGraphInstantiate(&run, graph, 0), "cudaGraphInstantiate");
      check(cudaGraphLaunch(run, stream), "cudaGraphLaunch");  // warms up
      const double wanted = kMicrosecondsPerAlgorithm / (kRounds * chain * std::max(once, 1.0));
      const int replays = std::clamp(static_cast<int>(wanted), 1, 100);
      for (int round = 0; round < kRounds; ++round) {
        const double total = microseconds([&] {
          for (int i = 0; i < replays; ++i) check(cudaGraphLaunch(run, stream), "cudaGraphLaunch");
        });
        fastest = std::min(fastest, total / (replays * chain));
      }
      check(cudaGraphExecDestroy(run), "cudaGraphExecDestroy");
    }
    check(cudaGraphDestroy(graph), "cudaGraphDestroy");
    return fastest;
  }

  // c [m, n] = op(a) op(b), column-major, inner size k: microseconds of the fastest algorithm.
  double product(int m, int n, int k, cublasOperation_t op_a, cublasOperation_t op_b) const {
    float* a = make_matrix(std::size_t(m) * k);
    float* b = make_matrix(std::size_t(k) * n);
    float* c = make_matrix(std::size_t(m) * n);
    cublasLtMatmulDesc_t desc;
    check(cublasLtMatmulDescCreate(&desc, compute, CUDA_R_32F), "cublasLtMatmulDescCreate");
    check(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSA, &op_a, sizeof(op_a)),
          "a transposition");
    check(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSB, &op_b, sizeof(op_b)),
          "a transposition");
    const bool flip_a = op_a == CUBLAS_OP_T;
    const bool flip_b = op_b == CUBLAS_OP_T;
    const cublasLtMatrixLayout_t of_a = layout(flip_a ? k : m, flip_a ? m : k);
    const cublasLtMatrixLayout_t of_b = layout(flip_b ? n : k, flip_b ? k : n);
    const cublasLtMatrixLayout_t of_c = layout(m, n);
    cublasLtMatmulPreference_t preference;
    check(cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate");
    check(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                               &kWorkspaceBytes, sizeof(kWorkspaceBytes)),
          "the workspace's size");
    cublasLtMatmulHeuristicResult_t offers[kMaxOffers];
    int num_offers = 0;
    check(cublasLtMatmulAlgoGetHeuristic(handle, desc, of_a, of_b, of_c, of_c, preference,
                                         kMaxOffers, offers, &num_offers),
          "cublasLtMatmulAlgoGetHeuristic");
    double best = std::numeric_limits<double>::infinity();
    for (int i = 0; i < num_offers; ++i) {
      const float one = 1, zero = 0;
      const auto launch = [&] {
        return cublasLtMatmul(handle, desc, &one, a, of_a, b, of_b, &zero, c, of_c, c, of_c,
                              &offers[i].algo, workspace, kWorkspaceBytes, stream);
      };
      best = std::min(best, time(launch, best));
    }
    check(best < std::numeric_limits<double>::infinity() ? 0 : num_offers + 1, "every algorithm");
    cublasLtMatmulPreferenceDestroy(preference);
    for (cublasLtMatrixLayout_t made : {of_a, of_b, of_c}) cublasLtMatrixLayoutDestroy(made);
    cublasLtMatmulDescDestroy(desc);
    for (float* data : {a, b, c}) check(cudaFree(data), "cudaFree");
    return best;
  }

  static cublasLtMatrixLayout_t layout(int rows, int cols) {
    cublasLtMatrixLayout_t made;
    check(cublasLtMatrixLayoutCreate(&made, CUDA_R_32F, rows, cols, rows),
          "cublasLtMatrixLayoutCreate");
    return made;
  }
};

// sizes: of the layers, the input first.
void print_products(const Bench& bench, int batch, const std::vector<int>& sizes) {
  double total = 0;
  int num_products = 0;
  for (std::size_t layer = 0; layer + 1 < sizes.size(); ++layer) {
    const int in = sizes[layer];
    const int out = sizes[layer + 1];
    // Row-major matrices are their transposes, column-major: y^T = W x^T, and so on.
    total += bench.product(in, out, batch, CUBLAS_OP_N, CUBLAS_OP_T);  // grad_W = grad_y^T x
    ++num_products;
    total += bench.product(out, batch, in, CUBLAS_OP_T, CUBLAS_OP_N);  // y = x W^T
    ++num_products;
    if (layer == 0) continue;  // nobody wants the gradient of the first layer's input
    total += bench.product(in, batch, out, CUBLAS_OP_N, CUBLAS_OP_N);  // grad_x = grad_y W
    ++num_products;
  }
  std::printf("products %.2f %d\n", total, num_products);
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  const bool is_sgemm = words.size() == 3 && words[0] == "sgemm";
  std::vector<int> numbers;
  for (std::size_t i = 2; i < words.size(); ++i) numbers.push_back(std::atoi(words[i].c_str()));
  const bool are_positive = std::ranges::all_of(numbers, [](int number) { return number > 0; });
  const bool has_precision = words.size() > 2 && (words[1] == "highest" || words[1] == "high");
  if (!has_precision || !are_positive ||
      !(is_sgemm || (words.size() >= 5 && words[0] == "products"))) {
    std::fprintf(stderr,
                 "usage: gpu_floor products highest|high BATCH SIZE SIZE...\n"
                 "       gpu_floor sgemm highest|high SIZE\n");
    return 2;
  }
  const Bench bench(words[1] == "high" ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F);
  if (!is_sgemm) {
    print_products(bench, numbers[0], {numbers.begin() + 1, numbers.end()});
    return 0;
  }
  const double n = numbers[0];
  const double time = bench.product(numbers[0], numbers[0], numbers[0], CUBLAS_OP_N, CUBLAS_OP_N);
  std::printf("sgemm %.6g\n", 2 * n * n * n / time * 1e-6);
  return 0;
}
