// Hooks that exchange gradients with fewer bits or fewer numbers.
#pragma once

#include <cstdint>
#include <memory>

#include "engine/parallel/ddp/comm_hook.h"

namespace lockstep::parallel {

// The average, as DDP makes it without a hook.
std::shared_ptr<CommHook> all_reduce_hook();

// The same in float16 or bfloat16: half the bytes of float32, a quarter
// of float64. Gradients are divided by the number
// of ranks before they are rounded, so that sums stay in range.
// Throws Error{Usage} for another dtype. Source: PyTorch's fp16_compress_hook, bf16_compress_hook.
std::shared_ptr<CommHook> compress_hook(DType dtype);

struct PowerSgdOptions {
  std::size_t rank = 1;  // the approximation's
  // So many steps before it are plain all-reduces; at least 2, since then buckets are final.
  std::size_t start_step = 1000;
  std::uint64_t seed = 0;
};

// A gradient is taken as a matrix M [n, m] of n rows, and only two thin matrices travel,
// P [n, rank] and Q [m, rank], whose product P Q^T stands for it:
//   M += error;  P = average of M Q, made orthonormal;  Q = average of M^T P;  error = M - P Q^T
// in the gradients' own type. Gradients that would not shrink by it, such as vectors, travel whole.
// The part that is lost in a step is added to the next step's gradient. Throws Error{Usage} for a
// rank of 0 or a start_step below 2. Source: Vogels et al., "PowerSGD: Practical Low-Rank Gradient
// Compression for Distributed Optimization", NeurIPS 2019; PyTorch's powerSGD_hook.
std::shared_ptr<CommHook> power_sgd_hook(const PowerSgdOptions& options = {});

}  // namespace lockstep::parallel
