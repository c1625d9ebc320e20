// The rate of a float32 product of square matrices, by the fastest algorithm that cuBLASLt offers:
// the ceiling of a wide net.
//
//   gpu_floor SIZE       prints "sgemm TFLOPS"
//
// An algorithm that the library refuses is left out; each other one gets about 60 ms.
#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <vector>

namespace {

constexpr std::size_t kWorkspaceBytes = std::size_t{32} << 20;
constexpr int kMaxOffers = 16;
constexpr double kNever = std::numeric_limits<double>::infinity();

void check(int status, const char* what) {
  if (status == 0) return;
  std::fprintf(stderr, "gpu_floor: %s failed with %d\n", what, status);
  std::exit(1);
}

// Values between -0.5 and 0.5.
float* make_matrix(std::size_t count) {
  float* data = nullptr;
  check(cudaMalloc(reinterpret_cast<void**>(&data), count * sizeof(float)), "cudaMalloc");
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = static_cast<float>((i * 2654435761u >> 8) & 0xffff) / 65536.0f - 0.5f;
  }
  check(cudaMemcpy(data, values.data(), count * sizeof(float), cudaMemcpyHostToDevice),
        "cudaMemcpy");
  return data;
}

struct Clock {
  cudaStream_t stream;
  cudaEvent_t begin, end;

  Clock() {
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
    check(cudaEventCreateWithFlags(&begin, cudaEventDefault), "cudaEventCreate");
    check(cudaEventCreateWithFlags(&end, cudaEventDefault), "cudaEventCreate");
  }

  // Seconds of one launch(), averaged over `count`; kNever where one is refused.
  template <typename Launch>
  double seconds(const Launch& launch, int count) const {
    check(cudaEventRecord(begin, stream), "cudaEventRecord");
    for (int i = 0; i < count; ++i) {
      if (launch() != 0) return kNever;
    }
    check(cudaEventRecord(end, stream), "cudaEventRecord");
    check(cudaEventSynchronize(end), "a product");
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, begin, end), "cudaEventElapsedTime");
    return 1e-3 * milliseconds / count;
  }
};

// Seconds of c = a * b by the fastest algorithm.
double product_seconds(std::size_t size) {
  const Clock clock;
  cublasLtHandle_t handle;
  check(cublasLtCreate(&handle), "cublasLtCreate");
  void* workspace = nullptr;
  check(cudaMalloc(&workspace, kWorkspaceBytes), "cudaMalloc");
  float *a = make_matrix(size * size), *b = make_matrix(size * size), *c = make_matrix(size * size);
  cublasLtMatmulDesc_t desc;
  check(cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F),
        "cublasLtMatmulDescCreate");
  cublasLtMatrixLayout_t layout;
  check(
      cublasLtMatrixLayoutCreate(&layout, CUDA_R_32F, size, size, static_cast<std::int64_t>(size)),
      "cublasLtMatrixLayoutCreate");
  cublasLtMatmulPreference_t preference;
  check(cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate");
  check(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                             &kWorkspaceBytes, sizeof(kWorkspaceBytes)),
        "the workspace's size");
  cublasLtMatmulHeuristicResult_t offers[kMaxOffers];
  int num_offers = 0;
  check(cublasLtMatmulAlgoGetHeuristic(handle, desc, layout, layout, layout, layout, preference,
                                       kMaxOffers, offers, &num_offers),
        "cublasLtMatmulAlgoGetHeuristic");
  double best = kNever;
  for (int i = 0; i < num_offers; ++i) {
    const float one = 1, zero = 0;
    const auto launch = [&] {
      return cublasLtMatmul(handle, desc, &one, a, layout, b, layout, &zero, c, layout, c, layout,
                            &offers[i].algo, workspace, kWorkspaceBytes, clock.stream);
    };
    const double once = std::min(clock.seconds(launch, 1), clock.seconds(launch, 1));
    if (once == kNever) continue;
    const int count = std::clamp(static_cast<int>(20e-3 / std::max(once, 1e-6)), 1, 100);
    for (int round = 0; round < 3; ++round) best = std::min(best, clock.seconds(launch, count));
  }
  check(best == kNever ? num_offers + 1 : 0, "every algorithm");
  return best;
}

}  // namespace

int main(int argc, char** argv) {
  const int size = argc == 2 ? std::atoi(argv[1]) : 0;
  if (size <= 0) {
    std::fputs("usage: gpu_floor SIZE\n", stderr);
    return 2;
  }
  const double n = size;
  std::printf("sgemm %.6g\n",
              2 * n * n * n / product_seconds(static_cast<std::size_t>(size)) * 1e-12);
  return 0;
}
