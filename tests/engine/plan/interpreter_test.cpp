#include "engine/plan/collective_plan.h"

#include "tests/engine/plan/plan_test_data.h"

namespace lockstep::plan {
namespace {

TEST(Interpreter, ReadsTheValuesFromBeforeTheStep) {
  RankBuffers buffers{{1}, {2}, {3}};
  const std::vector<Transfer> rotate{
      {0, 1, {0, 1}, Combine::copy}, {1, 2, {0, 1}, Combine::copy}, {2, 0, {0, 1}, Combine::copy}};
  interpret({"rotate", 3, 1, {{"", rotate}}}, buffers);
  EXPECT_EQ(buffers, (RankBuffers{{3}, {1}, {2}}));
}

TEST(Interpreter, AddsSeveralSendersInTheOrderOfRanks) {
  // (1e20 + 1) - 1e20 is 0, any order that adds the large values first gives 1.
  RankBuffers buffers{{1e20}, {1}, {-1e20}};
  interpret({"sum", 3, 1, {{"", {{2, 1, {0, 1}, Combine::add}, {0, 1, {0, 1}, Combine::add}}}}},
            buffers);
  EXPECT_EQ(buffers[1][0], 0.0);
}

}  // namespace
}  // namespace lockstep::plan
