// The totals of a collective plan, and its text for people.
#include <algorithm>
#include <iterator>

#include <fmt/format.h>

#include "engine/core/error.h"
#include "engine/plan/collective_plan.h"

namespace lockstep::plan {

namespace {

void require_rank(const CollectivePlan& plan, int rank) {
  require(rank >= 0 && rank < plan.world_size, ErrorCode::Usage, "plan",
          "rank must be in [0, {}), found {}", plan.world_size, rank);
}

// Sums of transfer sizes, by the rank in this member.
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

std::string to_string(const CollectivePlan& plan, std::size_t element_size) {
  std::string text;
  const auto out = std::back_inserter(text);
  fmt::format_to(out, "{}: {} ranks, {} elements ({} B) each, {} steps\n", plan.name,
                 plan.world_size, plan.num_elements, plan.num_elements * element_size,
                 num_steps(plan));
  std::size_t number = 0;
  for (const Step& step : plan.steps) {
    fmt::format_to(out, "step {}: {}\n", ++number, step.label);
    for (const Transfer& transfer : step.transfers) {
      fmt::format_to(out, "  rank {} -> rank {}  {:<4}  {}  {} B\n", transfer.from_rank,
                     transfer.to_rank, transfer.combine == Combine::add ? "add" : "copy",
                     to_string(transfer.chunk), transfer.chunk.count * element_size);
    }
  }
  fmt::format_to(out, "totals\n");
  std::size_t all_elements = 0;
  for (int rank = 0; rank < plan.world_size; ++rank) {
    const std::size_t sent = elements_sent(plan, rank);
    all_elements += sent;
    fmt::format_to(out, "  rank {}  sends {} B, receives {} B\n", rank, sent * element_size,
                   elements_received(plan, rank) * element_size);
  }
  fmt::format_to(out, "  together {} B in {} steps\n", all_elements * element_size,
                 num_steps(plan));
  return text;
}

}  // namespace lockstep::plan
