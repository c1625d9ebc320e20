// One row of `bench all-reduce`: the time of all-reduces of one size, and whether they are right.
#pragma once

#include "engine/comm/communicator.h"
#include "tools/collectives/all_reduce_flags.h"

namespace lockstep::tools {

struct AllReduceTime {
  double seconds = 0;         // mean of an all-reduce, on the slowest rank
  std::size_t num_wrong = 0;  // values, over all ranks; 0 where nothing was checked
};

// Every rank calls it alike, with a device of its own. count: elements of flags.dtype().
AllReduceTime measure_all_reduce(const AllReduceFlags& flags, comm::Communicator& communicator,
                                 Device device, std::size_t count);

}  // namespace lockstep::tools
