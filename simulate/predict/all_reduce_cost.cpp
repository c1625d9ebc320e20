#include "simulate/predict/all_reduce_cost.h"

#include <algorithm>
#include <vector>

namespace lockstep::predict {

AllReduceCost::AllReduceCost(Network& network, std::size_t num_devices,
                             std::optional<plan::AllReducePlan> plan, RankKind ranks)
    : network_(network), num_devices_(num_devices), plan_(plan), ranks_(ranks) {
  if (!plan_ && network.topology().device.measured) plan_ = plan::AllReducePlan::automatic;
  if (!plan_) group_ = nccl_group(network, num_devices);
}

double AllReduceCost::seconds(std::size_t num_bytes) {
  if (!plan_) return nccl_all_reduce_seconds(group_, static_cast<double>(num_bytes));
  const auto [found, is_new] = known_.try_emplace(num_bytes, 0);
  if (!is_new) return found->second;
  found->second = own_plan_seconds(network_, num_devices_, *plan_, num_bytes);
  if (*plan_ == plan::AllReducePlan::automatic) {
    found->second *=
        measured_over_plan(network_.topology().device, num_devices_, ranks_, num_bytes);
  }
  return found->second;
}

double measured_over_plan(const DeviceProfile& device, std::size_t num_devices, RankKind ranks,
                          std::size_t num_bytes) {
  if (!device.measured) return 1;
  const auto found =
      std::ranges::find_if(device.measured->all_reduces, [&](const MeasuredAllReduce& measured) {
        return measured.ranks == ranks && measured.num_devices == num_devices;
      });
  if (found == device.measured->all_reduces.end()) return 1;
  const double largest = found->over_plan.sizes.back();
  return found->over_plan.at(std::min(static_cast<double>(num_bytes), largest));
}

double own_plan_seconds(Network& network, std::size_t num_devices, plan::AllReducePlan plan,
                        std::size_t num_bytes) {
  std::vector<int> host_of_rank;
  for (std::size_t i = 0; i < num_devices; ++i) {
    host_of_rank.push_back(static_cast<int>(network.topology().nodes[network.gpu(i)].host));
  }
  return plan_seconds(network, plan::all_reduce_plan(plan, host_of_rank, num_bytes / sizeof(float)),
                      sizeof(float));
}

}  // namespace lockstep::predict
