#include <fmt/format.h>

#include "engine/core/error.h"
#include "engine/plan/algorithms.h"
#include "engine/plan/collective_plan.h"
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

// Interprets the plan, or a half of it, on whole numbers: every rank must hold the sum, after
// reduce-scatter in its own part. Before all-gather it holds it there, and zeros elsewhere.
std::string judge_plan_sums(const json& inputs, const json& answer) {
  const plan::CollectivePlan found = read_plan(inputs, answer);
  const std::string half = inputs.value("half", "");
  const auto num_ranks = static_cast<std::size_t>(found.world_size);
  plan::RankBuffers buffers(num_ranks, Numbers(found.num_elements));
  Numbers sum(found.num_elements);
  for (std::size_t rank = 0; rank < num_ranks; ++rank) {
    for (std::size_t i = 0; i < sum.size(); ++i) {
      buffers[rank][i] = static_cast<double>((rank + 2) * (i + 3));
      sum[i] += buffers[rank][i];
    }
  }
  const auto own_part = [&](const Numbers& buffer, std::size_t rank) {
    const plan::Chunk part = plan::even_chunk(sum.size(), num_ranks, rank);
    Numbers result(buffer.size());
    for (std::size_t i = part.offset; i < part.end(); ++i) result[i] = buffer[i];
    return result;
  };
  for (std::size_t rank = 0; rank < num_ranks && half == "all_gather"; ++rank) {
    buffers[rank] = own_part(sum, rank);
  }
  try {
    plan::interpret(found, buffers);
  } catch (const lockstep::Error& invalid) {
    return std::string(invalid.message());
  }
  for (std::size_t rank = 0; rank < num_ranks; ++rank) {
    const bool is_part = half == "reduce_scatter";
    const std::string wrong = differ(fmt::format("{}, {}: rank {}", counted(num_ranks, "rank"),
                                                 counted(sum.size(), "element"), rank),
                                     is_part ? own_part(sum, rank) : sum,
                                     is_part ? own_part(buffers[rank], rank) : buffers[rank]);
    if (!wrong.empty()) return wrong;
  }
  return {};
}

json half_case(const char* half) {
  json inputs = ring_case(4, 8);
  inputs["half"] = half;
  return inputs;
}

// The sum, and by a ring: to the right only, one part in each step, no step too many.
std::string judge_ring(const json& inputs, const json& answer) {
  const std::string wrong = judge_plan_sums(inputs, answer);
  if (!wrong.empty()) return wrong;
  const plan::CollectivePlan found = read_plan(inputs, answer);
  const plan::CollectivePlan ring = plan::ring_all_reduce(found.world_size, found.num_elements);
  if (found.steps.size() != ring.steps.size()) {
    return fmt::format("{}: expected {}, found {}",
                       counted(static_cast<std::size_t>(found.world_size), "rank"),
                       counted(ring.steps.size(), "step"), found.steps.size());
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
    return fmt::format("{}, {}: the busiest rank sends {}, expected {}",
                       counted(static_cast<std::size_t>(found.world_size), "rank"),
                       counted(found.num_elements, "element"), sent, expected);
  }
  return {};
}

}  // namespace

Lab ring_plan_lab() {
  Lab lab{"07_ring_plan", "The ring plan: who sends which part to whom, in which step", {}};
  lab.checks = {
      visible("reduce_scatter_completes_part_r_on_rank_r", 15,
              "in step s rank r sends part r - 1 - s, and its neighbour adds it",
              half_case("reduce_scatter"), judge_plan_sums),
      visible("all_gather_copies_every_part", 15,
              "in step s rank r sends part r - s, and its neighbour overwrites its own",
              half_case("all_gather"), judge_plan_sums),
      visible("two_ranks_sum", 5,
              "a step's transfers all happen at once: each reads what was there before the step",
              ring_case(2, 4), judge_plan_sums),
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
