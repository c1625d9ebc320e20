// The ways in which the library can compute a product.
#pragma once

#include <cublasLt.h>

#include <vector>

#include "kernels/cuda/product.h"

namespace lockstep::kernels::cuda {

// A way to compute a product.
struct ProductPlan {
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  cublasLtMatmulAlgo_t algorithm{};
  std::size_t workspace_bytes = 0;
  double microseconds = 0;  // with what the epilogue leaves to do; 0 where it was not timed
};

// The library's algorithms for a product and an epilogue, the one it thinks fastest first; none
// where it does not support the combination. Host work only: allowed during a capture.
std::vector<ProductPlan> candidates(Stream& stream, const Product& product,
                                    cublasLtEpilogue_t epilogue, int max_candidates);

// Whether a plan, read from a file, fits this product on this GPU.
bool is_runnable(Stream& stream, const Product& product, const ProductPlan& plan);

}  // namespace lockstep::kernels::cuda
