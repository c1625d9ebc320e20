#include "engine/plan/collective_plan.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "engine/core/error.h"

namespace lockstep::plan {

namespace {

std::size_t even_offset(std::size_t num_elements, std::size_t num_chunks, std::size_t index) {
  return index * (num_elements / num_chunks) + std::min(index, num_elements % num_chunks);
}

}  // namespace

Chunk even_chunk(std::size_t num_elements, std::size_t num_chunks, std::size_t index) {
  return even_chunks(num_elements, num_chunks, index, index + 1);
}

Chunk even_chunks(std::size_t num_elements, std::size_t num_chunks, std::size_t first,
                  std::size_t last) {
  const std::size_t begin = even_offset(num_elements, num_chunks, first);
  return {begin, even_offset(num_elements, num_chunks, last) - begin};
}

std::string to_string(Chunk chunk) {
  return fmt::format("[{}, {})", chunk.offset, chunk.end());
}

PlanBuilder::PlanBuilder(std::string name, int world_size, std::size_t num_elements) {
  require(world_size >= 1, ErrorCode::Usage, name, "world size must be at least 1, found {}",
          world_size);
  plan_.name = std::move(name);
  plan_.world_size = world_size;
  plan_.num_elements = num_elements;
}

void PlanBuilder::begin_step(std::string label) {
  plan_.steps.push_back(Step{std::move(label), {}});
}

void PlanBuilder::copy(int from_rank, int to_rank, Chunk chunk) {
  if (chunk.count == 0) return;
  plan_.steps.back().transfers.push_back({from_rank, to_rank, chunk, Combine::copy});
}

void PlanBuilder::add(int from_rank, int to_rank, Chunk chunk) {
  if (chunk.count == 0) return;
  plan_.steps.back().transfers.push_back({from_rank, to_rank, chunk, Combine::add});
}

void PlanBuilder::append(const CollectivePlan& part) {
  plan_.steps.insert(plan_.steps.end(), part.steps.begin(), part.steps.end());
}

CollectivePlan PlanBuilder::finish() {
  std::erase_if(plan_.steps, [](const Step& step) { return step.transfers.empty(); });
  return std::move(plan_);
}

void require_root(const std::string& operation, int world_size, int root) {
  require(root >= 0 && root < world_size, ErrorCode::Usage, operation,
          "root must be a rank in [0, {}), found {}", world_size, root);
}

namespace {

bool can_join(const Receive& receive, const Transfer& transfer) {
  return receive.combine == Combine::add && transfer.combine == Combine::add &&
         receive.chunk == transfer.chunk &&
         !std::ranges::binary_search(receive.from_ranks, transfer.from_rank);
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

std::vector<Receive> receives_of_rank(const Step& step, int rank) {
  std::vector<Receive> receives;
  for (const Transfer& transfer : step.transfers) {
    if (transfer.to_rank != rank) continue;
    const auto joined = std::ranges::find_if(
        receives, [&](const Receive& receive) { return can_join(receive, transfer); });
    if (joined == receives.end()) {
      receives.push_back({transfer.chunk, transfer.combine, {transfer.from_rank}});
    } else {
      std::vector<int>& ranks = joined->from_ranks;
      ranks.insert(std::ranges::lower_bound(ranks, transfer.from_rank), transfer.from_rank);
    }
  }
  std::ranges::stable_sort(receives, {},
                           [](const Receive& receive) { return receive.chunk.offset; });
  return receives;
}

void require_valid(const CollectivePlan& plan) {
  for (const Step& step : plan.steps) {
    for (const Transfer& transfer : step.transfers) require_valid_transfer(plan, step, transfer);
    for (int rank = 0; rank < plan.world_size; ++rank) {
      const std::vector<Receive> receives = receives_of_rank(step, rank);
      for (std::size_t i = 1; i < receives.size(); ++i) {
        require(!overlaps(receives[i - 1].chunk, receives[i].chunk), ErrorCode::Usage, "plan",
                "step '{}' of {} must write every element of a rank once, found {} and {} on "
                "rank {}",
                step.label, plan.name, to_string(receives[i - 1].chunk),
                to_string(receives[i].chunk), rank);
      }
    }
  }
}

RankSchedule rank_schedule(const CollectivePlan& plan, int rank) {
  require_valid(plan);
  RankSchedule schedule;
  schedule.num_elements_sent = elements_sent(plan, rank);
  for (const Step& planned : plan.steps) {
    RankSchedule::Step& step = schedule.steps.emplace_back();
    for (const Transfer& transfer : planned.transfers) {
      if (transfer.from_rank == rank) step.sends.push_back({transfer.to_rank, transfer.chunk});
    }
    std::ranges::stable_sort(step.sends, {}, [](const auto& send) { return send.chunk.offset; });
    step.receives = receives_of_rank(planned, rank);
    for (const RankSchedule::Send& send : step.sends) {
      step.overwrites_sent |= std::ranges::any_of(step.receives, [&](const Receive& receive) {
        return overlaps(send.chunk, receive.chunk);
      });
    }
  }
  return schedule;
}

}  // namespace lockstep::plan
