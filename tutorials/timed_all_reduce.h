// An all-reduce timed over a modelled link, for the tutorials that compare several.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

#include "engine/comm/communicator.h"

namespace lockstep::tutorial {

struct AllReduceTime {
  double seconds = 0;       // until every rank has the sum: the fastest of ten runs
  double sent_buffers = 0;  // by the busiest rank in one run, as the communicators counted them
};

// Every rank, a thread, calls all_reduce with a float32 buffer on the CPU. link: "50us,1GB/s"
// (comm/transport/link/link_spec.h).
// Throws Error{Numeric} when a rank then holds anything but the sum.
AllReduceTime time_all_reduce(
    const std::string& link, int num_ranks, std::size_t num_elements,
    const std::function<void(comm::Communicator&, const Tensor&)>& all_reduce);

}  // namespace lockstep::tutorial
