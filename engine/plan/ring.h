// The ring: every rank sends only to its right neighbour and receives only from its left one.
//
// The buffer is cut into world_size chunks. In the reduce-scatter half each chunk travels once
// around the ring and collects every rank's values; in the all-gather half the finished chunks
// travel once more. Every link carries the same load in every step, so no rank is a bottleneck,
// and the bytes per rank hardly grow with the number of ranks; the number of steps does.
//
// Source: Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of
// workstations", 2009. n = world_size below.
#pragma once

#include "engine/plan/collective_plan.h"

namespace lockstep::plan {

// Afterwards rank r holds the sum of chunk r (even_chunk(num_elements, n, r)); the rest of its
// buffer holds partial sums.
// Cost: n-1 steps; each rank sends (n-1)/n of the buffer.
CollectivePlan ring_reduce_scatter(int world_size, std::size_t num_elements);

// Rank r starts with chunk r; afterwards every rank holds all chunks.
// Cost: n-1 steps; each rank sends (n-1)/n of the buffer.
CollectivePlan ring_all_gather(int world_size, std::size_t num_elements);

// Reduce-scatter, then all-gather: afterwards every rank holds the sum of all buffers.
// Cost: 2(n-1) steps; each rank sends 2(n-1)/n of the buffer: the least that is possible.
CollectivePlan ring_all_reduce(int world_size, std::size_t num_elements);

}  // namespace lockstep::plan
