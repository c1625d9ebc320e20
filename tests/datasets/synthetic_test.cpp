#include "datasets/synthetic.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/expect_error.h"

namespace lockstep::datasets {
namespace {

using ::testing::ElementsAreArray;

TEST(Synthetic, DependsOnTheSeedAndTheRowAlone) {
  const data::LabelledRows all = make_synthetic_rows({50, 9, 4}, 0, 5);
  const data::LabelledRows tail = make_synthetic_rows({10, 9, 4}, 40, 5);
  EXPECT_THAT(tail.row(3), ElementsAreArray(all.row(43)));
  EXPECT_EQ(tail.labels[3], all.labels[43]);
  EXPECT_NE(make_synthetic_rows({50, 9, 4}, 0, 6).features, all.features);
}

// The values are fixed: a run can be repeated on another machine.
TEST(Synthetic, IsTheSameOnEveryMachine) {
  const data::LabelledRows rows = make_synthetic_rows({2, 5, 10}, 0, 0);
  EXPECT_THAT(rows.labels, ElementsAreArray({9, 8}));
  EXPECT_THAT(rows.features, ElementsAreArray({100, 142, 69, 155, 160, 104, 138, 41, 50, 199}));
}

TEST(Synthetic, SizesThatWrapAroundAreAnError) {
  constexpr std::size_t kHalf = std::size_t{1} << 32;
  testing::expect_error(ErrorCode::Shape, "[synthetic] 4294967296 times 4294967296", [] {
    make_synthetic_rows({1, kHalf, kHalf}, 0, 0);
  });
  testing::expect_error(ErrorCode::Usage, "[rng] there is no number below 0", [] {
    make_synthetic_rows({1, 1, 0}, 0, 0);
  });
}

}  // namespace
}  // namespace lockstep::datasets
