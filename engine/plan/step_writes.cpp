#include "engine/plan/step_writes.h"

#include <algorithm>

#include "engine/core/error.h"

namespace lockstep::plan {
namespace {

bool can_join(const Write& write, const Transfer& transfer) {
  return write.combine == Combine::add && transfer.combine == Combine::add &&
         write.chunk == transfer.chunk &&
         !std::ranges::binary_search(write.from_ranks, transfer.from_rank);
}

void require_valid_transfer(const CollectivePlan& plan, const Step& step,
                            const Transfer& transfer) {
  const auto exists = [&](int rank) { return rank >= 0 && rank < plan.world_size; };
  require(exists(transfer.from_rank) && exists(transfer.to_rank) &&
              transfer.from_rank != transfer.to_rank,
          ErrorCode::Usage, "plan",
          "step '{}' of {} must send between two different ranks below {}, found {} -> {}",
          step.label, plan.name, plan.world_size, transfer.from_rank, transfer.to_rank);
  const Chunk chunk = transfer.chunk;
  require(chunk.count > 0 && chunk.offset < plan.num_elements &&
              chunk.count <= plan.num_elements - chunk.offset,
          ErrorCode::Usage, "plan",
          "step '{}' of {} must send chunks inside its {} elements, found {} from rank {} to {}",
          step.label, plan.name, plan.num_elements, to_string(chunk), transfer.from_rank,
          transfer.to_rank);
}

}  // namespace

std::vector<Write> writes_of_rank(const Step& step, int rank) {
  std::vector<Write> writes;
  for (const Transfer& transfer : step.transfers) {
    if (transfer.to_rank != rank) continue;
    const auto joined =
        std::ranges::find_if(writes, [&](const Write& write) { return can_join(write, transfer); });
    if (joined == writes.end()) {
      writes.push_back({transfer.chunk, transfer.combine, {transfer.from_rank}});
    } else {
      std::vector<int>& ranks = joined->from_ranks;
      ranks.insert(std::ranges::lower_bound(ranks, transfer.from_rank), transfer.from_rank);
    }
  }
  std::ranges::stable_sort(writes, {}, [](const Write& write) { return write.chunk.offset; });
  return writes;
}

void require_valid(const CollectivePlan& plan) {
  for (const Step& step : plan.steps) {
    for (const Transfer& transfer : step.transfers) require_valid_transfer(plan, step, transfer);
    for (int rank = 0; rank < plan.world_size; ++rank) {
      const std::vector<Write> writes = writes_of_rank(step, rank);
      for (std::size_t i = 1; i < writes.size(); ++i) {
        require(!overlaps(writes[i - 1].chunk, writes[i].chunk), ErrorCode::Usage, "plan",
                "step '{}' of {} must write every element of a rank once, found {} and {} on "
                "rank {}",
                step.label, plan.name, to_string(writes[i - 1].chunk), to_string(writes[i].chunk),
                rank);
      }
    }
  }
}

}  // namespace lockstep::plan
