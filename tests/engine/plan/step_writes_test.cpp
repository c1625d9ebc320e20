#include "engine/plan/collective_plan.h"

#include "tests/engine/plan/plan_test_data.h"

namespace lockstep::plan {
namespace {

constexpr Combine kAdd = Combine::add;
constexpr Combine kCopy = Combine::copy;

TEST(WritesOfRank, JoinAddsToTheSameChunkInTheOrderOfRanks) {
  const Step step{"", {{3, 1, {0, 4}, kAdd}, {0, 1, {0, 4}, kAdd}, {2, 1, {0, 4}, kAdd}}};
  EXPECT_EQ(writes_of_rank(step, 1), (std::vector<Write>{{{0, 4}, kAdd, {0, 2, 3}}}));
}

TEST(WritesOfRank, KeepOtherChunksApartByRisingOffset) {
  const Step step{"", {{2, 1, {4, 4}, kCopy}, {0, 1, {0, 4}, kAdd}, {0, 2, {0, 4}, kAdd}}};
  EXPECT_EQ(writes_of_rank(step, 1),
            (std::vector<Write>{{{0, 4}, kAdd, {0}}, {{4, 4}, kCopy, {2}}}));
}

TEST(RequireValid, AcceptsSeveralAddsToOneChunk) {
  EXPECT_NO_THROW(
      require_valid({"good", 3, 8, {{"s", {{0, 1, {0, 8}, kAdd}, {2, 1, {0, 8}, kAdd}}}}}));
}

TEST(RequireValid, RefusesRanksThatDoNotExistAndSendingToOneself) {
  EXPECT_ERROR(require_valid({"bad", 2, 8, {{"s", {{0, 2, {0, 8}, kAdd}}}}}), ErrorCode::Usage,
               "step 's' of bad must send between two different ranks below 2, found 0 -> 2");
  EXPECT_ERROR(require_valid({"bad", 2, 8, {{"s", {{1, 1, {0, 8}, kAdd}}}}}), ErrorCode::Usage,
               "found 1 -> 1");
}

TEST(RequireValid, RefusesChunksThatAreEmptyOrOutsideTheBuffer) {
  EXPECT_ERROR(require_valid({"bad", 2, 8, {{"s", {{0, 1, {4, 5}, kAdd}}}}}), ErrorCode::Usage,
               "chunks inside its 8 elements, found [4, 9) from rank 0 to 1");
  EXPECT_ERROR(require_valid({"bad", 2, 8, {{"s", {{0, 1, {4, 0}, kAdd}}}}}), ErrorCode::Usage,
               "found [4, 4)");
}

TEST(RequireValid, RefusesTwoWritesToTheSameElement) {
  const auto plan = [](Transfer a, Transfer b) {
    return CollectivePlan{"bad", 3, 8, {{"s", {a, b}}}};
  };
  EXPECT_ERROR(require_valid(plan({0, 1, {0, 8}, kCopy}, {2, 1, {0, 8}, kCopy})), ErrorCode::Usage,
               "must write every element of a rank once");
  EXPECT_ERROR(require_valid(plan({0, 1, {0, 8}, kAdd}, {2, 1, {0, 8}, kCopy})), ErrorCode::Usage,
               "found [0, 8) and [0, 8) on rank 1");
  EXPECT_ERROR(require_valid(plan({0, 1, {0, 5}, kAdd}, {2, 1, {4, 4}, kAdd})), ErrorCode::Usage,
               "found [0, 5) and [4, 8) on rank 1");
  EXPECT_ERROR(require_valid(plan({0, 1, {0, 8}, kAdd}, {0, 1, {0, 8}, kAdd})), ErrorCode::Usage,
               "must write every element of a rank once");
}

}  // namespace
}  // namespace lockstep::plan
