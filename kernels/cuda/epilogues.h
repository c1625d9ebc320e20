// Which of the library's epilogues can take part in a product.
//
// An epilogue is what the library does to a result while it is in registers. Each spares a pass
// over memory and a launch. Which one serves which finish, in the library's words (D [m, n] is
// c^T):
//   bias                BIAS, RELU_BIAS, ...: an entry per row of D, so per column of c
//   ReLU, for backward  RELU_AUX: also writes a bit per element, set where a value got through
//   GELU(tanh)          GELU_AUX: also writes the values before
//   their gradients     DRELU, DGELU: read those back and multiply by the derivative
//   bias gradient       BGRADB: sums the second factor over k, an entry per column of D
//   the same, from the  DRELU_BGRAD, DGELU_BGRAD: sum what they write, an entry per row of D
//   layer above
// cuBLASLt has them for float32, not for float64.
//
// ReLU and NaN: every kernel of ours and the CPU keep a NaN, forward and backward, as PyTorch does;
// cuBLASLt's ReLU epilogues make 0 of it, and nothing is done about that. So a NaN in a layer with
// such an epilogue shows in its weights (of which require_finite of tools/training/losses.h looks
// for one once a loss, or the end, is not finite), not in the loss of that step.
// LOCKSTEP_EPILOGUES=off has it in the loss at once.
//
// LOCKSTEP_EPILOGUES=all|forward|off: without those of the backward pass, or without any, what they
// would do is done by kernels of ours, and one that is faulty in some version costs no run.
#pragma once

#include <cublasLt.h>

#include <cstdint>
#include <vector>

#include "kernels/cuda/product.h"

namespace lockstep::kernels::cuda {

// The epilogues that can take part in a product, the one that does most first; the last is
// CUBLASLT_EPILOGUE_DEFAULT, which leaves everything to kernels of our own.
// Throws Error{Usage} if LOCKSTEP_EPILOGUES is something else.
std::vector<cublasLtEpilogue_t> epilogues_for(const Product& product);

// Whether an epilogue multiplies by an activation's derivative, and whether it sums the result.
bool has_derivative(cublasLtEpilogue_t epilogue);
bool has_gradient_sums(cublasLtEpilogue_t epilogue);

// Whether an epilogue leaves nothing of this product's finish to kernels of our own.
bool does_all(cublasLtEpilogue_t epilogue, const Product& product);

// Whether an epilogue writes, or reads, the mask of a ReLU.
bool writes_relu_mask(cublasLtEpilogue_t epilogue);
bool reads_relu_mask(cublasLtEpilogue_t epilogue);

// The bits of a row of a mask for c [rows, cols]: rounded up to 128, as cuBLASLt requires.
std::int64_t mask_leading_dimension(std::size_t cols);

// The bytes of that mask.
std::size_t relu_mask_bytes(std::size_t rows, std::size_t cols);

}  // namespace lockstep::kernels::cuda
