#include "ring_plan.h"

#include <utility>

#include "engine/plan/collective_plan.h"
#include "lab.h"

namespace lab {
namespace {

namespace plan = lockstep::plan;

// Part `index` of the buffer, counted around the ring: -1 is the last part.
plan::Chunk part(int world_size, std::size_t num_elements, int index) {
  const int wrapped = (index % world_size + world_size) % world_size;
  return plan::even_chunk(num_elements, static_cast<std::size_t>(world_size),
                          static_cast<std::size_t>(wrapped));
}

// Every rank sends one part to its right neighbour. part_of_rank(rank) says which.
template <typename PartOfRank>
plan::Step make_step(int world_size, std::size_t num_elements, plan::Combine combine,
                     const PartOfRank& part_of_rank) {
  plan::Step step;
  for (int rank = 0; rank < world_size; ++rank) {
    const plan::Chunk chunk = part(world_size, num_elements, part_of_rank(rank));
    if (chunk.count == 0) continue;
    step.transfers.push_back({rank, (rank + 1) % world_size, chunk, combine});
  }
  return step;
}

}  // namespace

std::vector<plan::Step> reduce_scatter_steps(int world_size, std::size_t num_elements) {
  std::vector<plan::Step> steps;
  // SOLUTION begin: reduce_scatter_steps: add n-1 steps with Combine::add, in which each part
  // collects all values
  for (int s = 0; s < world_size - 1; ++s) {
    steps.push_back(make_step(world_size, num_elements, plan::Combine::add,
                              [s](int rank) { return rank - 1 - s; }));
  }
  // SOLUTION end
  return steps;
}

std::vector<plan::Step> all_gather_steps(int world_size, std::size_t num_elements) {
  std::vector<plan::Step> steps;
  // SOLUTION begin: all_gather_steps: add n-1 steps with Combine::copy, in which the finished parts
  // go round
  for (int s = 0; s < world_size - 1; ++s) {
    steps.push_back(make_step(world_size, num_elements, plan::Combine::copy,
                              [s](int rank) { return rank - s; }));
  }
  // SOLUTION end
  return steps;
}

plan::CollectivePlan ring_plan(int world_size, std::size_t num_elements) {
  plan::CollectivePlan ring{"lab ring", world_size, num_elements, {}};
  if (world_size == 1 || num_elements == 0) return ring;
  ring.steps = reduce_scatter_steps(world_size, num_elements);
  for (plan::Step& step : all_gather_steps(world_size, num_elements)) {
    ring.steps.push_back(std::move(step));
  }
  return ring;
}

}  // namespace lab
