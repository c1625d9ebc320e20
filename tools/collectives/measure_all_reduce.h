// One row of `bench all-reduce`: the time of all-reduces of one size, and whether they are right.
#pragma once

#include "engine/comm/communicator.h"
#include "tools/collectives/all_reduce_flags.h"

namespace lockstep::tools {

struct AllReduceTime {
  double seconds = 0;         // mean of an all-reduce, on the slowest rank
  std::size_t num_wrong = 0;  // values, over all ranks; 0 where nothing was checked
};

// out_of_place: the sum goes into a buffer beside the input. All-reduces work in place here, so it
// is a copy and an all-reduce of that.
enum class Placement { in_place, out_of_place };

// Every rank calls it alike, with a device of its own. count: elements of flags.dtype().
AllReduceTime measure_all_reduce(const AllReduceFlags& flags, comm::Communicator& communicator,
                                 Device device, std::size_t count,
                                 Placement placement = Placement::in_place);

}  // namespace lockstep::tools
