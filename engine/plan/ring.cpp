// The ring: every rank sends only to its right neighbour and receives only from its left one.
//
// The buffer is cut into world_size chunks. In the reduce-scatter half each chunk travels once
// around the ring and collects every rank's values; in the all-gather half the finished chunks
// travel once more. Every link carries the same load in every step, so no rank is a bottleneck,
// and the bytes per rank hardly grow with the number of ranks; the number of steps does.
//
// Source: Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of
// workstations", 2009.
#include "engine/plan/algorithms.h"

#include <fmt/format.h>

#include "engine/plan/collective_plan.h"

namespace lockstep::plan {
namespace {

// Chunk `index`, counted around the ring: -1 is the last chunk.
Chunk ring_chunk(int world_size, std::size_t num_elements, int index) {
  const int wrapped = (index % world_size + world_size) % world_size;
  return even_chunk(num_elements, static_cast<std::size_t>(world_size),
                    static_cast<std::size_t>(wrapped));
}

}  // namespace

CollectivePlan ring_reduce_scatter(int world_size, std::size_t num_elements) {
  PlanBuilder builder("ring reduce-scatter", world_size, num_elements);
  for (int step = 0; step < world_size - 1; ++step) {
    builder.begin_step(fmt::format("reduce-scatter {}/{}", step + 1, world_size - 1));
    for (int rank = 0; rank < world_size; ++rank) {
      // A rank passes on what it summed in the step before; in the last step it receives chunk
      // number `rank`, complete.
      builder.add(rank, (rank + 1) % world_size,
                  ring_chunk(world_size, num_elements, rank - 1 - step));
    }
  }
  return builder.finish();
}

CollectivePlan ring_all_gather(int world_size, std::size_t num_elements) {
  PlanBuilder builder("ring all-gather", world_size, num_elements);
  for (int step = 0; step < world_size - 1; ++step) {
    builder.begin_step(fmt::format("all-gather {}/{}", step + 1, world_size - 1));
    for (int rank = 0; rank < world_size; ++rank) {
      builder.copy(rank, (rank + 1) % world_size,
                   ring_chunk(world_size, num_elements, rank - step));
    }
  }
  return builder.finish();
}

CollectivePlan ring_all_reduce(int world_size, std::size_t num_elements) {
  PlanBuilder builder("ring all-reduce", world_size, num_elements);
  builder.append(ring_reduce_scatter(world_size, num_elements));
  builder.append(ring_all_gather(world_size, num_elements));
  return builder.finish();
}

}  // namespace lockstep::plan
