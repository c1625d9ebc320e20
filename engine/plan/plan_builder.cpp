#include "engine/plan/plan_builder.h"

#include <utility>

#include "engine/core/error.h"

namespace lockstep::plan {

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

}  // namespace lockstep::plan
