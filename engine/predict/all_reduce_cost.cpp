#include "engine/predict/all_reduce_cost.h"

#include <vector>

namespace lockstep::predict {

AllReduceCost::AllReduceCost(Network& network, std::size_t num_devices,
                             std::optional<plan::AllReducePlan> plan)
    : network_(network), num_devices_(num_devices), plan_(plan) {
  if (!plan_) group_ = nccl_group(network, num_devices);
}

double AllReduceCost::seconds(std::size_t num_bytes) {
  if (!plan_) return nccl_all_reduce_seconds(group_, static_cast<double>(num_bytes));
  const auto [found, is_new] = known_.try_emplace(num_bytes, 0);
  if (!is_new) return found->second;
  std::vector<int> host_of_rank;
  for (std::size_t i = 0; i < num_devices_; ++i) {
    host_of_rank.push_back(static_cast<int>(network_.topology().nodes[network_.gpu(i)].host));
  }
  const plan::CollectivePlan steps =
      plan::all_reduce_plan(*plan_, host_of_rank, num_bytes / sizeof(float));
  found->second = plan_seconds(network_, steps, sizeof(float));
  return found->second;
}

}  // namespace lockstep::predict
