#include "engine/plan/collective_plan.h"

#include "engine/plan/algorithms.h"
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

constexpr Combine kAdd = Combine::add;
constexpr Combine kCopy = Combine::copy;

TEST(RequireValid, RefusesTransfersThatCannotBe) {
  const std::pair<std::vector<Transfer>, const char*> mistakes[] = {
      {{{0, 3, {0, 8}, kAdd}},
       "step 's' of bad must send between two different ranks below 3, found 0 -> 3"},
      {{{1, 1, {0, 8}, kAdd}}, "found 1 -> 1"},
      {{{0, 1, {4, 5}, kAdd}}, "chunks inside its 8 elements, found [4, 9) from rank 0 to 1"},
      {{{0, 1, {4, 0}, kAdd}}, "found [4, 4)"},
      {{{0, 1, {0, 8}, kCopy}, {2, 1, {0, 8}, kCopy}}, "must write every element of a rank once"},
      {{{0, 1, {0, 8}, kAdd}, {2, 1, {0, 8}, kCopy}}, "found [0, 8) and [0, 8) on rank 1"},
      {{{0, 1, {0, 5}, kAdd}, {2, 1, {4, 4}, kAdd}}, "found [0, 5) and [4, 8) on rank 1"},
      {{{0, 1, {0, 8}, kAdd}, {0, 1, {0, 8}, kAdd}}, "must write every element of a rank once"},
  };
  for (const auto& [transfers, words] : mistakes) {
    expect_error(ErrorCode::Usage, words, [&] {
      require_valid({"bad", 3, 8, {{"s", transfers}}});
    });
  }
  EXPECT_NO_THROW(
      require_valid({"good", 3, 8, {{"s", {{0, 1, {0, 8}, kAdd}, {2, 1, {0, 8}, kAdd}}}}}));
}

}  // namespace
}  // namespace lockstep::plan
