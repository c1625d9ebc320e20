// Shared by the tests of communicators: the sizes that every collective is checked with, and
// values whose reductions are known.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/comm/communicator.h"
#include "engine/core/rng.h"
#include "engine/plan/all_reduce_plan.h"
#include "engine/plan/collective_plan.h"
#include "engine/tensor/tensor.h"
#include "tests/support/devices.h"

namespace lockstep::comm {

using lockstep::testing::test_device;

inline constexpr std::array<int, 10> kWorldSizes{1, 2, 3, 4, 5, 6, 7, 8, 9, 16};
inline constexpr std::array<std::size_t, 6> kLengths{0, 1, 5, 64, 101, 4096};
inline constexpr std::size_t kLargeLength = 300'007;
inline constexpr std::array kPlans{plan::AllReducePlan::automatic,
                                   plan::AllReducePlan::ring,
                                   plan::AllReducePlan::tree,
                                   plan::AllReducePlan::halving_doubling,
                                   plan::AllReducePlan::one_shot,
                                   plan::AllReducePlan::two_shot,
                                   plan::AllReducePlan::reduce_broadcast,
                                   plan::AllReducePlan::hierarchical};

inline constexpr std::array kReducibleTypes{DType::float32, DType::float64, DType::bfloat16,
                                            DType::float16, DType::int32,   DType::int64};

// Values of very different sizes, so that the order of summation shows in the last bits.
inline plan::RankBuffers rounding_buffers(int world_size, std::size_t num_elements) {
  plan::RankBuffers buffers(static_cast<std::size_t>(world_size));
  Rng rng(11);
  for (std::vector<double>& buffer : buffers) {
    for (std::size_t i = 0; i < num_elements; ++i) {
      buffer.push_back(rng.normal() * (rng.uniform() < 0.5 ? 1.0 : 1e9));
    }
  }
  return buffers;
}

inline Tensor tensor_of(const std::vector<double>& values, int rank) {
  return Tensor::from(values, {values.size()}, test_device(rank));
}

// Element i of a rank: small integers, never 0, so that every op is exact in every dtype.
inline double small_value(int rank, std::size_t i) {
  return static_cast<double>(1 + (static_cast<std::size_t>(rank) + i) % 2) *
         ((static_cast<std::size_t>(rank) * 7 + i) % 5 == 0 ? -1.0 : 1.0);
}

inline Tensor small_values(int rank, std::size_t num_elements, DType dtype) {
  std::vector<double> values;
  for (std::size_t i = 0; i < num_elements; ++i) values.push_back(small_value(rank, i));
  return tensor_of(values, rank).to(dtype);
}

// The reduction of element i over all ranks.
inline double reduced_small_value(ReduceOp op, int world_size, std::size_t i) {
  double result = small_value(0, i);
  for (int rank = 1; rank < world_size; ++rank) {
    const double value = small_value(rank, i);
    switch (op) {
      case ReduceOp::sum:
      case ReduceOp::average:
        result += value;
        break;
      case ReduceOp::product:
        result *= value;
        break;
      case ReduceOp::min:
        result = std::min(result, value);
        break;
      case ReduceOp::max:
        result = std::max(result, value);
        break;
    }
  }
  return op == ReduceOp::average ? result / world_size : result;
}

inline std::string what_case(plan::AllReducePlan plan, int world_size, std::size_t num_elements) {
  return fmt::format("{}, {} ranks, {} elements", plan::to_string(plan), world_size, num_elements);
}

// Every rank's buffer after the plan has run. REQUIRES: plan is not automatic.
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
