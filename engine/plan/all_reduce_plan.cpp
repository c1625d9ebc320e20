#include "engine/plan/all_reduce_plan.h"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "engine/core/error.h"
#include "engine/plan/algorithms.h"

namespace lockstep::plan {

namespace {

struct NamedPlan {
  AllReducePlan plan;
  std::string_view name;
  CollectivePlan (*make)(int world_size, std::size_t num_elements);
};

CollectivePlan make_automatic(int world_size, std::size_t num_elements) {
  return all_reduce_plan(choose_all_reduce_plan(world_size, num_elements), world_size,
                         num_elements);
}

CollectivePlan make_hierarchical(int world_size, std::size_t num_elements) {
  const std::vector<int> one_host(static_cast<std::size_t>(std::max(world_size, 0)));
  return hierarchical_all_reduce(one_host, num_elements);
}

// In the enum's order.
constexpr std::array<NamedPlan, 8> kPlans{{
    {AllReducePlan::automatic, "auto", make_automatic},
    {AllReducePlan::ring, "ring", ring_all_reduce},
    {AllReducePlan::tree, "tree", tree_all_reduce},
    {AllReducePlan::halving_doubling, "halving-doubling", halving_doubling_all_reduce},
    {AllReducePlan::one_shot, "one-shot", one_shot_all_reduce},
    {AllReducePlan::two_shot, "two-shot", two_shot_all_reduce},
    {AllReducePlan::reduce_broadcast, "reduce-broadcast", reduce_broadcast_all_reduce},
    {AllReducePlan::hierarchical, "hierarchical", make_hierarchical},
}};

constexpr std::size_t kMaxOneShotElements = 4096;

}  // namespace

std::string_view to_string(AllReducePlan plan) {
  return kPlans[static_cast<std::size_t>(plan)].name;
}

AllReducePlan parse_all_reduce_plan(std::string_view name) {
  std::string allowed;
  for (const NamedPlan& named : kPlans) {
    if (named.name == name) return named.plan;
    allowed += allowed.empty() ? "" : ", ";
    allowed += named.name;
  }
  fail(ErrorCode::Usage, "plan", "unknown all-reduce plan '{}'; use one of: {}", name, allowed);
}

AllReducePlan choose_all_reduce_plan(int world_size, std::size_t num_elements) {
  if (world_size <= kMaxDirectRanks) {
    return num_elements <= kMaxOneShotElements ? AllReducePlan::one_shot : AllReducePlan::two_shot;
  }
  return num_elements <= kMaxHalvingDoublingElements ? AllReducePlan::halving_doubling
                                                     : AllReducePlan::ring;
}

CollectivePlan all_reduce_plan(AllReducePlan plan, int world_size, std::size_t num_elements) {
  return kPlans[static_cast<std::size_t>(plan)].make(world_size, num_elements);
}

CollectivePlan all_reduce_plan(AllReducePlan plan, std::span<const int> host_of_rank,
                               std::size_t num_elements) {
  return plan == AllReducePlan::hierarchical
             ? hierarchical_all_reduce(host_of_rank, num_elements)
             : all_reduce_plan(plan, static_cast<int>(host_of_rank.size()), num_elements);
}

CollectivePlan broadcast_plan(int world_size, std::size_t num_elements, int root) {
  return world_size <= kMaxDirectRanks ? flat_broadcast(world_size, num_elements, root)
                                       : tree_broadcast(world_size, num_elements, root);
}

CollectivePlan all_gather_plan(int world_size, std::size_t num_elements) {
  return world_size <= kMaxDirectRanks ? direct_all_gather(world_size, num_elements)
                                       : ring_all_gather(world_size, num_elements);
}

CollectivePlan reduce_scatter_plan(int world_size, std::size_t num_elements) {
  return world_size <= kMaxDirectRanks ? direct_reduce_scatter(world_size, num_elements)
                                       : ring_reduce_scatter(world_size, num_elements);
}

}  // namespace lockstep::plan
