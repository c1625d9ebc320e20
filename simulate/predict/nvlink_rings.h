// How much a ring all-reduce can move over NVLinks between GPUs that have no switch: as many rings
// through all of them as the links allow, each link used by one ring a direction.
//
// A closed way through all GPUs makes two rings, one for each direction. NCCL searches for them in
// the same spirit (src/graph/search.cc). On a DGX-1 there are four rings of 18 GB/s (P100) or six
// of 20 GB/s (V100).
#pragma once

#include <cstddef>
#include <vector>

namespace lockstep::predict {

// links[i][j]: bytes per second from GPU i to GPU j over their own links, 0 without one; symmetric.
// Returns what each GPU sends per second, over all rings together; 0 where no ring exists, or for
// more than 10 GPUs, which are not searched.
double nvlink_ring_bytes_per_second(const std::vector<std::vector<double>>& links);

}  // namespace lockstep::predict
