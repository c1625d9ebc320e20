// Runs a collective plan on plain vectors.
#include <algorithm>

#include "engine/core/error.h"
#include "engine/plan/collective_plan.h"

namespace lockstep::plan {

namespace {

void do_receive(const Receive& receive, std::size_t rank, const RankBuffers& before,
                RankBuffers& after) {
  std::vector<int> sources = receive.from_ranks;
  if (receive.combine == Combine::add) {
    sources.push_back(static_cast<int>(rank));
    std::ranges::sort(sources);
  }
  for (std::size_t i = receive.chunk.offset; i < receive.chunk.end(); ++i) {
    double value = before[static_cast<std::size_t>(sources.front())][i];
    for (std::size_t k = 1; k < sources.size(); ++k) {
      value += before[static_cast<std::size_t>(sources[k])][i];
    }
    after[rank][i] = value;
  }
}

}  // namespace

void interpret_step(const Step& step, RankBuffers& buffers) {
  const RankBuffers before = buffers;
  for (std::size_t rank = 0; rank < buffers.size(); ++rank) {
    for (const Receive& receive : receives_of_rank(step, static_cast<int>(rank))) {
      do_receive(receive, rank, before, buffers);
    }
  }
}

void interpret(const CollectivePlan& plan, RankBuffers& buffers) {
  require_valid(plan);
  require(buffers.size() == static_cast<std::size_t>(plan.world_size), ErrorCode::Usage,
          "interpret", "{} needs {} buffers, found {}", plan.name, plan.world_size, buffers.size());
  for (const std::vector<double>& buffer : buffers) {
    require(buffer.size() == plan.num_elements, ErrorCode::Usage, "interpret",
            "{} needs buffers of {} elements, found {}", plan.name, plan.num_elements,
            buffer.size());
  }
  for (const Step& step : plan.steps) interpret_step(step, buffers);
}

}  // namespace lockstep::plan
