// The ways in which the library can compute a product.
#pragma once

#include <cublasLt.h>

#include <array>
#include <cstdint>
#include <vector>

#include "kernels/cuda/product.h"

namespace lockstep::kernels::cuda {

// Everything that decides which algorithms a product has and how fast they are, and nothing else:
// sizes, strides, alignments, types, precision, finish; no addresses. Pointers count by whether
// they and the rows after them are aligned to 4, 8 or 16 bytes, so that a shard of a batch that
// begins at another row is the same product.
using ProductKey = std::array<std::int64_t, 21>;
ProductKey key_of(const Product& product);

// A way to compute a product.
struct ProductPlan {
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  cublasLtMatmulAlgo_t algorithm{};
  std::size_t workspace_bytes = 0;
  double microseconds = 0;  // with what the epilogue leaves to do; 0 where it was not timed
};

// Whatever status the library answers to one way of computing a product, there are other ways: all
// below take it for a refusal, say why in the log (LOCKSTEP_LOG=debug), and throw Error{Cuda} only
// where the GPU itself has failed.

// The library's algorithms for a product and an epilogue, the one it thinks fastest first; none
// where it does not support the combination. Host work only: allowed during a capture.
std::vector<ProductPlan> candidates(Stream& stream, const Product& product,
                                    cublasLtEpilogue_t epilogue, int max_candidates);

// Whether a plan, read from a file, fits this product on this GPU.
bool is_runnable(Stream& stream, const Product& product, const ProductPlan& plan);

enum class Launched { yes, refused };
// Enqueues the product, then what the epilogue leaves to do. `refused`: the library does not run
// this algorithm here, and nothing is enqueued.
Launched try_launch(Stream& stream, const Product& product, const ProductPlan& plan);

}  // namespace lockstep::kernels::cuda
