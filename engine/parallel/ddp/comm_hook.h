// A hook exchanges full buckets in place of the plain all-reduce: with fewer bits or numbers
// (compression.h), or by one's own idea.
#pragma once

#include <cstddef>
#include <vector>

#include "engine/comm/communicator.h"

namespace lockstep::parallel {

// A full bucket on its way.
struct GradBucket {
  std::size_t index = 0;
  Tensor memory;                  // [elements]: this rank's gradients behind each other
  std::vector<Tensor> gradients;  // views of it, one for each parameter
};

// Every rank registers the same hook. start() is called for every bucket, in the same order on all
// ranks, on the thread of backward(); finish() when all their work is done.
class CommHook {
 public:
  virtual ~CommHook() = default;
  // Starts the exchange.
  virtual comm::Work start(const GradBucket& bucket, comm::Communicator& communicator,
                           comm::Launch launch) = 0;
  // Leaves the average over all ranks in bucket.memory, if start()'s work has not.
  virtual void finish(const GradBucket& bucket) { static_cast<void>(bucket); }
};

}  // namespace lockstep::parallel
