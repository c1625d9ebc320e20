#include "engine/plan/collective_plan.h"

#include "engine/plan/ring.h"
#include "tests/engine/plan/plan_test_data.h"

namespace lockstep::plan {
namespace {

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
