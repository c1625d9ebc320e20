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
}

TEST(Scatter, SaysHowManyDevicesStayIdle) {
  EXPECT_EQ(scatter_plan(30, 3).num_idle_devices(), 0u);
  EXPECT_EQ(scatter_plan(10, 8).num_idle_devices(), 3u);
  EXPECT_EQ(scatter_plan(5, 4).num_idle_devices(), 1u);
  EXPECT_EQ(scatter_plan(3, 4).num_idle_devices(), 1u);
}

TEST(Scatter, NoRowsMakeAnEmptyPartForEachDevice) {
  EXPECT_THAT(sizes(scatter_plan(0, 3)), ElementsAre(0, 0, 0));
}

TEST(Scatter, PartsInOrderCoverTheBatchSoThatGatherIsItsReverse) {
  for (std::size_t rows = 0; rows <= 70; ++rows) {
    for (std::size_t devices = 1; devices <= 16; ++devices) {
      const ScatterPlan plan = scatter_plan(rows, devices);
      const std::size_t chunk = (rows + devices - 1) / devices;
      EXPECT_EQ(plan.parts.size(), rows == 0 ? devices : (rows + chunk - 1) / chunk);
      std::size_t end = 0;
      for (std::size_t i = 0; i < plan.parts.size(); ++i) {
        EXPECT_EQ(plan.parts[i].index, i);
        EXPECT_EQ(plan.parts[i].offset, end);
        end += plan.parts[i].size;
      }
      EXPECT_EQ(end, rows);
    }
  }
}

TEST(Scatter, CutsAlongAnyDimension) {
  const Shape shape{4, 7, 20};
  EXPECT_EQ(scatter_plan(shape, 0, 3), scatter_plan(4, 3));
  EXPECT_EQ(scatter_plan(shape, 1, 3), scatter_plan(7, 3));
  EXPECT_EQ(scatter_plan(shape, 2, 3), scatter_plan(20, 3));
}

TEST(Scatter, RefusesADimensionThatTheInputDoesNotHave) {
  EXPECT_ERROR(scatter_plan(Shape{2, 3, 4, 5}, 5, 2), ErrorCode::Shape,
               "[scatter] cannot split 4-D input along dim 5");
  EXPECT_ERROR(scatter_plan(Shape{}, 0, 2), ErrorCode::Shape,
               "[scatter] cannot split 0-D input along dim 0");
}

TEST(Scatter, RefusesToCutForNoDevices) {
  EXPECT_ERROR(scatter_plan(10, 0), ErrorCode::Usage, "[scatter] needs at least one device");
}

TEST(Scatter, PrintsALinePerDevice) {
  EXPECT_EQ(to_string(scatter_plan(5, 4)),
            "5 rows on 4 devices\n"
            "  device 0: rows [0, 2), 2 rows\n"
            "  device 1: rows [2, 4), 2 rows\n"
            "  device 2: rows [4, 5), 1 rows\n"
            "  device 3: idle\n");
}

}  // namespace
}  // namespace lockstep::plan
