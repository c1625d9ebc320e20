// An abort from another thread while ranks are in the middle of an all-reduce.
#pragma once

#include <cstddef>
#include <thread>

#include "engine/comm/communicator.h"
#include "engine/core/error.h"
#include "engine/tensor/tensor.h"

namespace lockstep::comm {

// All-reduces again and again; from call number abort_at on, a thread of rank 0 aborts the group
// with the word "enough". Throws what ends it. Each buffer is freed at once when its call fails.
inline void all_reduce_until_rank_0_aborts(Communicator& communicator, plan::AllReducePlan plan,
                                           std::size_t num_elements, int abort_at) {
  std::thread other;
  CollectiveOptions options;
  options.plan = plan;
  for (int call = 0;; ++call) {
    const Tensor buffer = Tensor::zeros({num_elements});
    if (communicator.rank() == 0 && call == abort_at) {
      other = std::thread([&communicator] { communicator.abort("enough"); });
    }
    try {
      communicator.all_reduce(buffer, options);
    } catch (const Error&) {
      if (other.joinable()) other.join();
      throw;
    }
  }
}

}  // namespace lockstep::comm
