// Chooses the algorithm of every matrix product.
//
// When a product (ProductKey) is first seen, the library's algorithms for it are timed
// on this GPU, with and without an epilogue, and the fastest is remembered. Timing runs on a stream
// and in memory of its own, so nothing that anybody sees is touched; a first training step takes
// some tenths of a second longer.
//   Sharing:      one table per GPU model in the process, so ranks as threads and logical devices
//                 use the same algorithms; of threads that meet the same new product one times it.
//   Captures:     nothing is timed while a stream is captured into a graph. A product that was
//                 never seen before then takes the library's first guess.
//   Bits:         a chosen algorithm gives the same bits in every call. Another one may add in
//                 another order, so runs that are tuned separately, in other processes or on other
//                 GPU models, may differ in rounding. DDP does not mind: ranks share the
//                 all-reduced gradients. Where bits must be equal between runs: UntunedScope
//                 (matmul_tuning.h), or the same table for all, below.
//   On disk:      LOCKSTEP_TUNING_CACHE=FILE keeps the table between processes (tuning_cache.h).
#pragma once

#include <cstddef>

#include "kernels/cuda/product_plan.h"

namespace lockstep::kernels::cuda {

// Enqueues a product in its chosen way. c with an inner size of 0 is zeroed, or kept where the
// product adds; an empty c is left alone. REQUIRES: shapes fit.
void run(Stream& stream, const Product& product);

// How a product will be computed. REQUIRES: it is not empty.
ProductPlan plan_for(Stream& stream, const Product& product);

// Of this process so far: what tests and a curious user ask.
struct TuningStatistics {
  std::size_t num_timed = 0;   // products
  std::size_t num_loaded = 0;  // products whose algorithm came from the cache file
};
TuningStatistics tuning_statistics();

// Forgets all choices, as if the process had just begun; the cache file is read again.
// REQUIRES: no product is being enqueued.
void forget_tuning();

}  // namespace lockstep::kernels::cuda
