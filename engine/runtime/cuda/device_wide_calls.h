// Calls for which CUDA waits until a GPU and all its peers have done their work: taking and giving
// back memory, first of all.
//
// Between the launches of kernels that wait for each other on several GPUs there must be none: it
// would wait for the first kernel, which waits for the second, which cannot be launched meanwhile.
#pragma once

#include <mutex>

namespace lockstep::runtime::cuda {

// Held during every such call, and from the first to the last launch of such kernels. Whoever holds
// it takes no other lock that somebody may hold during such a call.
[[nodiscard]] inline std::unique_lock<std::mutex> hold_device_wide_calls() {
  static std::mutex mutex;
  return std::unique_lock(mutex);
}

}  // namespace lockstep::runtime::cuda
