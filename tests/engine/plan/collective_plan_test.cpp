#include "engine/plan/collective_plan.h"

#include "engine/plan/ring.h"
#include "tests/engine/plan/plan_test_data.h"

namespace lockstep::plan {
namespace {

CollectivePlan small_plan() {
  return {"small",
          3,
          10,
          {{"first", {{0, 1, {0, 4}, Combine::add}, {2, 1, {4, 6}, Combine::copy}}},
           {"second", {{1, 2, {0, 10}, Combine::copy}}}}};
}

TEST(CollectivePlan, CountsWhatEachRankSendsAndReceives) {
  const CollectivePlan plan = small_plan();
  EXPECT_EQ(num_steps(plan), 2u);
  EXPECT_EQ(elements_sent(plan, 0), 4u);
  EXPECT_EQ(elements_sent(plan, 1), 10u);
  EXPECT_EQ(elements_sent(plan, 2), 6u);
  EXPECT_EQ(elements_received(plan, 0), 0u);
  EXPECT_EQ(elements_received(plan, 1), 10u);
  EXPECT_EQ(elements_received(plan, 2), 10u);
  EXPECT_EQ(max_elements_sent(plan), 10u);
}

TEST(CollectivePlan, PrintsEveryStepWithBytesAndTotals) {
  EXPECT_EQ(to_string(ring_all_reduce(2, 10), 4),
            "ring all-reduce: 2 ranks, 10 elements (40 B) each, 2 steps\n"
            "step 1: reduce-scatter 1/1\n"
            "  rank 0 -> rank 1  add   [5, 10)  20 B\n"
            "  rank 1 -> rank 0  add   [0, 5)  20 B\n"
            "step 2: all-gather 1/1\n"
            "  rank 0 -> rank 1  copy  [0, 5)  20 B\n"
            "  rank 1 -> rank 0  copy  [5, 10)  20 B\n"
            "totals\n"
            "  rank 0  sends 40 B, receives 40 B\n"
            "  rank 1  sends 40 B, receives 40 B\n"
            "  together 80 B in 2 steps\n");
}

}  // namespace
}  // namespace lockstep::plan
