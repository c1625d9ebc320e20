// What an all-reduce over the first devices of a topology costs: by NCCL's model, or by charging
// the plan that the engine itself would run.
#pragma once

#include <cstddef>
#include <map>
#include <optional>

#include "engine/plan/all_reduce_plan.h"
#include "engine/predict/nccl_model.h"
#include "engine/predict/network.h"

namespace lockstep::predict {

class AllReduceCost {
 public:
  // plan: the engine's own; empty: NCCL. network must outlive the object.
  AllReduceCost(Network& network, std::size_t num_devices, std::optional<plan::AllReducePlan> plan);

  // Of float32 elements. Of one of the engine's plans: charged once a size.
  double seconds(std::size_t num_bytes);

 private:
  Network& network_;
  std::size_t num_devices_;
  std::optional<plan::AllReducePlan> plan_;
  NcclGroup group_;
  std::map<std::size_t, double> known_;  // by bytes
};

}  // namespace lockstep::predict
