// The order in which the collectives of a process go to its devices.
#pragma once

#include <mutex>

namespace lockstep::comm {

// Held by whoever ties the streams of several CUDA devices together: by a collective from its first
// wait to its last launch, by a message for the wait at its receiver.
//
// Kernels that wait for each other (transport/cuda_peer/flag_all_reduce.h) need it. If two
// collectives were enqueued at the same time, one GPU's queue could hold them in one order and
// another GPU's in the other, and each would wait for the end of the other.
[[nodiscard]] inline std::unique_lock<std::mutex> hold_enqueue_order() {
  static std::mutex mutex;
  return std::unique_lock(mutex);
}

}  // namespace lockstep::comm
