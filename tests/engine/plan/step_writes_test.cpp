#include "engine/plan/collective_plan.h"

#include "tests/engine/plan/plan_test_data.h"

namespace lockstep::plan {
namespace {

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
    EXPECT_ERROR(require_valid({"bad", 3, 8, {{"s", transfers}}}), ErrorCode::Usage, words);
  }
  EXPECT_NO_THROW(
      require_valid({"good", 3, 8, {{"s", {{0, 1, {0, 8}, kAdd}, {2, 1, {0, 8}, kAdd}}}}}));
}

}  // namespace
}  // namespace lockstep::plan
