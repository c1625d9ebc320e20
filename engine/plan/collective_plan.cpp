#include "engine/plan/collective_plan.h"

#include <algorithm>

#include "engine/core/error.h"

namespace lockstep::plan {
namespace {

void require_rank(const CollectivePlan& plan, int rank) {
  require(rank >= 0 && rank < plan.world_size, ErrorCode::Usage, "plan",
          "rank must be in [0, {}), found {}", plan.world_size, rank);
}

// Sums of transfer sizes, grouped by the rank that a member names.
std::vector<std::size_t> totals(const CollectivePlan& plan, int Transfer::*rank_member) {
  std::vector<std::size_t> sums(static_cast<std::size_t>(plan.world_size), 0);
  for (const Step& step : plan.steps) {
    for (const Transfer& transfer : step.transfers) {
      sums[static_cast<std::size_t>(transfer.*rank_member)] += transfer.chunk.count;
    }
  }
  return sums;
}

}  // namespace

std::size_t num_steps(const CollectivePlan& plan) {
  return plan.steps.size();
}

std::size_t elements_sent(const CollectivePlan& plan, int rank) {
  require_rank(plan, rank);
  return totals(plan, &Transfer::from_rank)[static_cast<std::size_t>(rank)];
}

std::size_t elements_received(const CollectivePlan& plan, int rank) {
  require_rank(plan, rank);
  return totals(plan, &Transfer::to_rank)[static_cast<std::size_t>(rank)];
}

std::size_t max_elements_sent(const CollectivePlan& plan) {
  return std::ranges::max(totals(plan, &Transfer::from_rank));
}

}  // namespace lockstep::plan
