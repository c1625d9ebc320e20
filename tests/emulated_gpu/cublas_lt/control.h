// Lets a test make the emulated cuBLASLt refuse, as versions of the real one sometimes do.
#pragma once

#include <cublasLt.h>

#include <cstdint>

namespace emulated_gpu::cublas_lt {

// The call that refuses, and the number by which it does.
enum class Refused {
  product,        // cublasLtMatmul, by the algorithm's CUBLASLT_ALGO_CONFIG_ID
  configuration,  // cublasLtMatmulAlgoConfigGetAttribute, by the same
  heuristic,      // cublasLtMatmulAlgoGetHeuristic, by the epilogue
  factors,        // the same, by their cudaDataType
};

// From now on the call returns this status for that number. Any thread may call this.
void refuse(Refused what, std::int64_t number, cublasStatus_t status);
// Takes back all refusals.
void refuse_nothing();

// The call's result: CUBLAS_STATUS_SUCCESS unless a test asked for a refusal.
cublasStatus_t refusal_of(Refused what, std::int64_t number);

}  // namespace emulated_gpu::cublas_lt
