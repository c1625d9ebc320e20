// The ways to run a product: which algorithms cuBLASLt has for it, and which of them give right
// results. For product.cpp, which chooses among them.
#pragma once

#include <cublasLt.h>

#include <cstddef>
#include <vector>

#include "kernels/cuda/product_words.h"

namespace lockstep::kernels::cuda {

struct Plan {
  FinishBy finish_by = FinishBy::kernel;
  cublasLtMatmulAlgo_t algorithm{};
  std::size_t workspace_bytes = 0;
};

// The plans for a product, starting with the one that the library expects to be fastest. Empty: the
// library has no algorithm for it; the log says so at level debug.
// REQUIRES: the stream is not captured. Throws Error{Cuda} if the GPU has failed.
std::vector<Plan> candidates(Stream& stream, const Product& product);

// Logs a status that the library returned for one algorithm, which is a refusal whatever it is,
// because there are others. Throws Error{Cuda} if the GPU itself has failed.
void note_refusal(Stream& stream, const char* call, cublasStatus_t status);

}  // namespace lockstep::kernels::cuda
