// Plans of one step or two: one-shot, two-shot, reduce-broadcast (algorithms.h has their costs).
//
// One-shot: every rank reads all others' whole buffers and adds them up by itself. It has one step,
// and so the lowest latency; but it moves n-1 times the buffer per rank, so it is only for small
// buffers. Every rank adds in the order of ranks, so all get the same bits. Each buffer is read
// while its owner writes the result, so ranks read a copy made before.
//
// Source: the one-shot custom all-reduce of TensorRT-LLM and vLLM.
#include "engine/plan/algorithms.h"

#include <fmt/format.h>

#include "engine/plan/collective_plan.h"

namespace lockstep::plan {

CollectivePlan one_shot_all_reduce(int world_size, std::size_t num_elements) {
  PlanBuilder builder("one-shot all-reduce", world_size, num_elements);
  builder.begin_step("everybody reads everybody");
  for (int reader = 0; reader < world_size; ++reader) {
    for (int peer = 0; peer < world_size; ++peer) {
      if (peer != reader) builder.add(peer, reader, {0, num_elements});
    }
  }
  return builder.finish();
}

namespace {

Chunk chunk_of_rank(int world_size, std::size_t num_elements, int rank) {
  return even_chunk(num_elements, static_cast<std::size_t>(world_size),
                    static_cast<std::size_t>(rank));
}

}  // namespace

CollectivePlan direct_reduce_scatter(int world_size, std::size_t num_elements) {
  PlanBuilder builder("direct reduce-scatter", world_size, num_elements);
  builder.begin_step("reduce-scatter");
  for (int owner = 0; owner < world_size; ++owner) {
    for (int peer = 0; peer < world_size; ++peer) {
      if (peer != owner) builder.add(peer, owner, chunk_of_rank(world_size, num_elements, owner));
    }
  }
  return builder.finish();
}

CollectivePlan direct_all_gather(int world_size, std::size_t num_elements) {
  PlanBuilder builder("direct all-gather", world_size, num_elements);
  builder.begin_step("all-gather");
  for (int owner = 0; owner < world_size; ++owner) {
    for (int peer = 0; peer < world_size; ++peer) {
      if (peer != owner) builder.copy(owner, peer, chunk_of_rank(world_size, num_elements, owner));
    }
  }
  return builder.finish();
}

CollectivePlan two_shot_all_reduce(int world_size, std::size_t num_elements) {
  PlanBuilder builder("two-shot all-reduce", world_size, num_elements);
  builder.append(direct_reduce_scatter(world_size, num_elements));
  builder.append(direct_all_gather(world_size, num_elements));
  return builder.finish();
}

CollectivePlan flat_reduce(int world_size, std::size_t num_elements, int root) {
  PlanBuilder builder("flat reduce", world_size, num_elements);
  require_root("flat reduce", world_size, root);
  builder.begin_step(fmt::format("reduce to rank {}", root));
  for (int rank = 0; rank < world_size; ++rank) {
    if (rank != root) builder.add(rank, root, {0, num_elements});
  }
  return builder.finish();
}

CollectivePlan flat_broadcast(int world_size, std::size_t num_elements, int root) {
  PlanBuilder builder("flat broadcast", world_size, num_elements);
  require_root("flat broadcast", world_size, root);
  builder.begin_step(fmt::format("broadcast from rank {}", root));
  for (int rank = 0; rank < world_size; ++rank) {
    if (rank != root) builder.copy(root, rank, {0, num_elements});
  }
  return builder.finish();
}

CollectivePlan reduce_broadcast_all_reduce(int world_size, std::size_t num_elements) {
  PlanBuilder builder("reduce-broadcast all-reduce", world_size, num_elements);
  builder.append(flat_reduce(world_size, num_elements, 0));
  builder.append(flat_broadcast(world_size, num_elements, 0));
  return builder.finish();
}

}  // namespace lockstep::plan
