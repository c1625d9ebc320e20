#include <fmt/format.h>

#include "engine/core/error.h"
#include "engine/plan/collective_plan.h"
#include "engine/plan/ring.h"
#include "tutorials/labs/judging/values.h"

namespace lab {
namespace {

namespace plan = lockstep::plan;

json ring_case(std::size_t ranks, std::size_t elements) {
  return json{{"ranks", ranks}, {"elements", elements}};
}

plan::CollectivePlan read_plan(const json& inputs, const json& answer) {
  plan::CollectivePlan result{"the plan", inputs.at("ranks"), inputs.at("elements"), {}};
  for (const json& transfers : answer) {
    plan::Step& step = result.steps.emplace_back();
    for (const json& t : transfers) {
      const bool adds = t.at(4) == "add";
      step.transfers.push_back(
          {t.at(0), t.at(1), {t.at(2), t.at(3)}, adds ? plan::Combine::add : plan::Combine::copy});
    }
  }
  return result;
}

// Interprets the plan on whole numbers: every rank must hold the sum.
std::string judge_plan_sums(const json& inputs, const json& answer) {
  const plan::CollectivePlan found = read_plan(inputs, answer);
  const auto num_ranks = static_cast<std::size_t>(found.world_size);
  plan::RankBuffers buffers(num_ranks, Numbers(found.num_elements));
  Numbers sum(found.num_elements);
  for (std::size_t rank = 0; rank < num_ranks; ++rank) {
    for (std::size_t i = 0; i < sum.size(); ++i) {
      buffers[rank][i] = static_cast<double>((rank + 2) * (i + 3));
      sum[i] += buffers[rank][i];
    }
  }
  try {
    plan::interpret(found, buffers);
  } catch (const lockstep::Error& invalid) {
    return std::string(invalid.message());
  }
  for (std::size_t rank = 0; rank < num_ranks; ++rank) {
    const std::string wrong =
        differ(fmt::format("{} ranks, {} elements: rank {}", num_ranks, sum.size(), rank), sum,
               buffers[rank]);
    if (!wrong.empty()) return wrong;
  }
  return {};
}

// The sum, and by a ring: to the right only, one part in each step, no step too many.
std::string judge_ring(const json& inputs, const json& answer) {
  const std::string wrong = judge_plan_sums(inputs, answer);
  if (!wrong.empty()) return wrong;
  const plan::CollectivePlan found = read_plan(inputs, answer);
  const plan::CollectivePlan ring = plan::ring_all_reduce(found.world_size, found.num_elements);
  if (found.steps.size() != ring.steps.size()) {
    return fmt::format("{} ranks: expected {} steps, found {}", found.world_size, ring.steps.size(),
                       found.steps.size());
  }
  for (const plan::Step& step : found.steps) {
    for (const plan::Transfer& transfer : step.transfers) {
      if (transfer.to_rank != (transfer.from_rank + 1) % found.world_size) {
        return fmt::format("rank {} sends to rank {}: a ring sends to the right neighbour only",
                           transfer.from_rank, transfer.to_rank);
      }
    }
  }
  const std::size_t expected = plan::max_elements_sent(ring);
  const std::size_t sent = plan::max_elements_sent(found);
  if (sent > expected) {
    return fmt::format("{} ranks, {} elements: the busiest rank sends {}, expected {}",
                       found.world_size, found.num_elements, sent, expected);
  }
  return {};
}

}  // namespace

Lab ring_plan_lab() {
  Lab lab{"07_ring_plan", "The ring plan: who sends which part to whom, in which step", {}};
  lab.checks = {
      visible("two_ranks_sum", 15,
              "a step's transfers all happen at once: each reads what was there before the step",
              ring_case(2, 4), judge_plan_sums),
      visible("four_ranks_sum", 20,
              "a part is finished after n-1 additions; only then may it be copied on",
              ring_case(4, 8), judge_plan_sums),
      visible("three_ranks_by_a_ring", 15,
              "every rank sends to rank + 1 only, and one part in each of 2 (n-1) steps",
              ring_case(3, 9), judge_ring),
      hidden(
          "drawn_rings", 35,
          "parts are even_chunk(num_elements, n, index): sizes differ where n does not divide", 5,
          [](lockstep::Rng& rng) {
            const std::size_t ranks = draw_between(rng, 3, 12);
            return ring_case(ranks,
                             ranks * draw_between(rng, 3, 20) + draw_between(rng, 1, ranks - 1));
          },
          judge_ring),
      {"fewer_elements_than_ranks_planned", Shown::hidden, 15,
       "leave out empty parts, and steps that move nothing",
       [](lockstep::Rng& rng) {
         const std::size_t ranks = draw_between(rng, 5, 9);
         return std::vector<json>{ring_case(ranks, ranks - 2), ring_case(ranks, 1)};
       },
       judge_ring}};
  return lab;
}

}  // namespace lab
