// How a collective plan is printed.
#include <fmt/format.h>

#include <iterator>

#include "engine/plan/collective_plan.h"

namespace lockstep::plan {

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
