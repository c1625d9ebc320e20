// All-reduce for ranks on several hosts: as little as possible crosses the slow links between
// hosts, and every rank of a host carries its share of it.
//
// Let every host have at least L ranks. The buffer is cut into L chunks; rank number l of each host
// owns chunk l there:
//   1. inside each host, every rank sends chunk l to its owner, who adds them up
//   2. between hosts, the owners of chunk l all-reduce it among themselves (a ring, or
//      halving-doubling if it is small)
//   3. inside each host, the owners send their chunks to all others
// With one rank per host only the plan between hosts remains; on one host this is two-shot.
//
// Source: the two-level scheme of Horovod's NCCLHierarchicalAllreduce and of NCCL across nodes.
#pragma once

#include <span>

#include "engine/plan/collective_plan.h"

namespace lockstep::plan {

// host_of_rank[r]: any number that the ranks of one host share, and no others.
// Cost: for H hosts with R ranks each, 2 steps and those between the hosts; 2(H-1)/H buffers leave
// each host (ring), spread evenly over its ranks.
// Throws Error{Usage} if there is no rank.
CollectivePlan hierarchical_all_reduce(std::span<const int> host_of_rank, std::size_t num_elements);

}  // namespace lockstep::plan
