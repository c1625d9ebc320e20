// What an all-reduce over the first devices of a topology costs: by NCCL's model, by charging the
// plan that the engine itself would run, or, on a machine where that was measured, by what it was
// more than the charge.
#pragma once

#include <cstddef>
#include <map>
#include <optional>

#include "engine/plan/all_reduce_plan.h"
#include "simulate/predict/nccl_model.h"
#include "simulate/predict/network.h"

namespace lockstep::predict {

class AllReduceCost {
 public:
  // plan: the engine's own; empty: NCCL, but on a machine that was measured the engine's automatic
  // one, which takes there what it was measured to take by ranks of that kind. network must outlive
  // the object.
  AllReduceCost(Network& network, std::size_t num_devices, std::optional<plan::AllReducePlan> plan,
                RankKind ranks = RankKind::threads);

  // Of float32 elements. Of one of the engine's plans: charged once a size.
  double seconds(std::size_t num_bytes);

 private:
  Network& network_;
  std::size_t num_devices_;
  std::optional<plan::AllReducePlan> plan_;
  RankKind ranks_;
  NcclGroup group_;
  std::map<std::size_t, double> known_;  // by bytes
};

// How many times as long as the links charge an all-reduce by the engine's automatic plan takes
// (MeasuredAllReduce::over_plan); 1 where none was measured between so many devices.
double measured_over_plan(const DeviceProfile& device, std::size_t num_devices, RankKind ranks,
                          std::size_t num_bytes);

// What the links charge for the engine's own plan; automatic: the one that it would choose.
double own_plan_seconds(Network& network, std::size_t num_devices, plan::AllReducePlan plan,
                        std::size_t num_bytes);

}  // namespace lockstep::predict
