// What a test can make the emulated cuBLASLt refuse, as versions of the real one do now and then.
#pragma once

#include <cublasLt.h>

#include <cstdint>

namespace emulated_gpu::cublas_lt {

// Which call refuses, and what it refuses by.
enum class Refused {
  product,        // cublasLtMatmul, by the algorithm's CUBLASLT_ALGO_CONFIG_ID
  configuration,  // cublasLtMatmulAlgoConfigGetAttribute, by the same
  heuristic,      // cublasLtMatmulAlgoGetHeuristic, by the epilogue
};

// From now on the call answers this status to it. Any thread may call this.
void refuse(Refused what, std::int64_t number, cublasStatus_t status);
// Takes back all refusals.
void refuse_nothing();

// What the call answers: CUBLAS_STATUS_SUCCESS where nobody asked for a refusal.
cublasStatus_t refusal_of(Refused what, std::int64_t number);

}  // namespace emulated_gpu::cublas_lt
