// Shared by the tests of communicators: the sizes that every collective is checked with, and
// values whose reductions are known.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/comm/communicator.h"
#include "engine/core/error.h"
#include "engine/plan/all_reduce_plan.h"
#include "engine/plan/collective_plan.h"
#include "engine/tensor/tensor.h"
#include "tests/engine/plan/plan_test_data.h"
#include "tests/support/devices.h"

namespace lockstep::comm {

using lockstep::testing::test_device;

using plan::kLengths;
using plan::kWorldSizes;
using plan::rounding_buffers;

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

// Every rank calls it: all reductions, of tensors on this device. Throws Error{Numeric} for a wrong
// value.
inline void check_all_reduces(Communicator& group, std::span<const DType> types, Device device,
                              plan::AllReducePlan plan = plan::AllReducePlan::automatic,
                              std::span<const std::size_t> lengths = kLengths) {
  for (const DType dtype : types) {
    for (const ReduceOp op :
         {ReduceOp::sum, ReduceOp::average, ReduceOp::product, ReduceOp::min, ReduceOp::max}) {
      if (op == ReduceOp::average && !is_floating_point(dtype)) continue;
      for (const std::size_t length : lengths) {
        const Tensor buffer = small_values(group.rank(), length, dtype).to(device);
        const Launch launch = length % 2 == 1 ? Launch::blocking : Launch::async;
        group.all_reduce(buffer, {.op = op, .launch = launch, .plan = plan}).wait();
        const std::vector<double> reduced = buffer.to(DType::float64).to_vector<double>();
        for (std::size_t i = 0; i < length; ++i) {
          require(reduced[i] == reduced_small_value(op, group.world_size(), i), ErrorCode::Numeric,
                  "all_reduce", "op {} of element {} in {} by the {} plan is {}",
                  static_cast<int>(op), i, lockstep::to_string(dtype), plan::to_string(plan),
                  reduced[i]);
        }
      }
    }
  }
}

// Element i of a rank, for a collective that moves it in any dtype.
inline std::vector<double> small_numbers(int rank, std::size_t num_elements) {
  std::vector<double> numbers;
  for (std::size_t i = 0; i < num_elements; ++i) {
    numbers.push_back(static_cast<double>(1 + (3 * static_cast<std::size_t>(rank) + i) % 7));
  }
  return numbers;
}

// The same for the other collectives, with so many elements of each rank. Every dtype is moved,
// whether or not it can be reduced; averages are taken where they are exact.
inline void check_moves(Communicator& group, std::span<const DType> types, Device device,
                        std::size_t length = 3) {
  const auto n = static_cast<std::size_t>(group.world_size());
  const auto rank = static_cast<std::size_t>(group.rank());
  const auto expect = [](bool is_right, std::string_view operation) {
    require(is_right, ErrorCode::Numeric, operation, "gave another value");
  };
  std::vector<double> numbers_of_all;
  for (int r = 0; r < group.world_size(); ++r) {
    const std::vector<double> numbers = small_numbers(r, length);
    numbers_of_all.insert(numbers_of_all.end(), numbers.begin(), numbers.end());
  }
  for (const DType dtype : types) {
    const auto mine = [&] { return tensor_of(small_numbers(group.rank(), length), 0).to(dtype); };
    const Tensor all = Tensor::zeros({n, length}, dtype, device);
    group.all_gather(mine().to(device), all);
    group.all_gather(all.rows(rank, rank + 1), all, Launch::async).wait();
    expect(all.to(DType::float64).to_vector<double>() == numbers_of_all, "all_gather");
    for (const int root : {0, group.world_size() / 2, group.world_size() - 1}) {
      const Tensor buffer = mine().to(device);
      group.broadcast(buffer, root);
      expect(buffer.to(DType::float64).to_vector<double>() == small_numbers(root, length),
             "broadcast");
    }
  }
  const Tensor input = small_values(group.rank(), length * n, DType::float64).to(device);
  const std::vector<double> before = input.to_vector<double>();
  const Tensor output = Tensor::zeros({length}, DType::float64, device);
  for (const ReduceOp op : {ReduceOp::sum, ReduceOp::average, ReduceOp::max}) {
    if (op == ReduceOp::average && (n & (n - 1)) != 0) continue;
    group.reduce_scatter(input, output, {.op = op});
    const std::vector<double> part = output.to_vector<double>();
    for (std::size_t i = 0; i < length; ++i) {
      expect(part[i] == reduced_small_value(op, group.world_size(), rank * length + i),
             "reduce_scatter");
    }
    expect(input.to_vector<double>() == before, "reduce_scatter");
  }
  group.barrier();
  group.barrier(Launch::async).wait();
}

// All-reduces again and again; from call number abort_at on, a thread of rank 0 aborts the group
// with the word "enough". Throws what ends it. Each buffer is freed at once when its call fails.
inline void all_reduce_until_rank_0_aborts(Communicator& communicator, plan::AllReducePlan plan,
                                           std::size_t num_elements, int abort_at) {
  std::thread other;
  CollectiveOptions options;
  options.plan = plan;
  for (int call = 0;; ++call) {
    const Tensor buffer = Tensor::zeros({num_elements});
    if (communicator.rank() == 0 && call == abort_at) {
      other = std::thread([&communicator] { communicator.abort("enough"); });
    }
    try {
      communicator.all_reduce(buffer, options);
    } catch (const Error&) {
      if (other.joinable()) other.join();
      throw;
    }
  }
}

// Every rank fails with this code and these words.
inline void expect_errors(const std::vector<std::optional<Error>>& errors, ErrorCode code,
                          const std::string& words) {
  for (const auto& error : errors) {
    ASSERT_TRUE(error) << words;
    EXPECT_EQ(error->code(), code) << error->what();
    EXPECT_THAT(error->what(), ::testing::HasSubstr(words));
  }
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
  std::vector<std::vector<double>> expected_;  // indexed by plan; every rank has the same
};

}  // namespace lockstep::comm
