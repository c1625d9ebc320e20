// All-reduces whose results are known to the last bit: what the serial interpreter of plans gives.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tests/engine/comm/comm_test_data.h"

namespace lockstep::comm {

inline std::string what_case(plan::AllReducePlan plan, int world_size, std::size_t num_elements) {
  return fmt::format("{}, {} ranks, {} elements", plan::to_string(plan), world_size, num_elements);
}

// What a plan leaves on every rank. REQUIRES: plan is not automatic.
inline plan::RankBuffers interpreted(plan::AllReducePlan plan, plan::RankBuffers buffers) {
  const auto world_size = static_cast<int>(buffers.size());
  plan::interpret(plan::all_reduce_plan(plan, world_size, buffers.front().size()), buffers);
  return buffers;
}

// The sums of rounding_buffers by several plans.
class PlanBits {
 public:
  // automatic: the plan that the communicator will choose for it.
  PlanBits(int world_size, std::size_t num_elements, std::span<const plan::AllReducePlan> plans,
           plan::AllReducePlan automatic = plan::AllReducePlan::ring)
      : inputs_(rounding_buffers(world_size, num_elements)), plans_(plans.begin(), plans.end()) {
    for (const plan::AllReducePlan plan : plans_) {
      const bool is_named = plan != plan::AllReducePlan::automatic;
      plan::RankBuffers results = interpreted(is_named ? plan : automatic, inputs_);
      for (const auto& result : results) EXPECT_TRUE(result == results.front());
      expected_.push_back(std::move(results.front()));
    }
  }

  // Every rank calls it: all plans, one after the other.
  void expect_from(Communicator& communicator) const {
    const std::vector<double>& input = inputs_[static_cast<std::size_t>(communicator.rank())];
    for (std::size_t p = 0; p < plans_.size(); ++p) {
      const Tensor buffer = tensor_of(input, communicator.rank());
      CollectiveOptions options;
      options.plan = plans_[p];
      communicator.all_reduce(buffer, options);
      EXPECT_TRUE(buffer.to_vector<double>() == expected_[p])
          << what_case(plans_[p], communicator.world_size(), input.size());
    }
  }

 private:
  plan::RankBuffers inputs_;
  std::vector<plan::AllReducePlan> plans_;
  std::vector<std::vector<double>> expected_;  // by plan; every rank has the same
};

}  // namespace lockstep::comm
