#include "engine/plan/scatter.h"

#include "tests/engine/plan/plan_test_data.h"

namespace lockstep::plan {
namespace {

using ::testing::ElementsAre;

std::vector<std::size_t> sizes(const ScatterPlan& plan) {
  std::vector<std::size_t> result;
  for (const ScatterPart& part : plan.parts) result.push_back(part.size);
  return result;
}

TEST(Scatter, CutsAsTorchChunkDoes) {
  EXPECT_THAT(sizes(scatter_plan(30, 3)), ElementsAre(10, 10, 10));
  EXPECT_THAT(sizes(scatter_plan(20, 3)), ElementsAre(7, 7, 6));
  EXPECT_THAT(sizes(scatter_plan(10, 4)), ElementsAre(3, 3, 3, 1));
  EXPECT_THAT(sizes(scatter_plan(10, 8)), ElementsAre(2, 2, 2, 2, 2));
  EXPECT_THAT(sizes(scatter_plan(5, 4)), ElementsAre(2, 2, 1));
  EXPECT_THAT(sizes(scatter_plan(3, 4)), ElementsAre(1, 1, 1));
  EXPECT_THAT(sizes(scatter_plan(0, 3)), ElementsAre(0, 0, 0));
}

TEST(Scatter, PrintsALinePerDevice) {
  EXPECT_EQ(to_string(scatter_plan(5, 4)),
            "5 rows on 4 devices\n"
            "  device 0: rows [0, 2), 2 rows\n"
            "  device 1: rows [2, 4), 2 rows\n"
            "  device 2: rows [4, 5), 1 row\n"
            "  device 3: idle\n");
}

}  // namespace
}  // namespace lockstep::plan
