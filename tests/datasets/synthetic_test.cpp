#include "datasets/synthetic.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <set>

#include "tests/support/expect_error.h"

namespace lockstep::datasets {
namespace {

using ::testing::ElementsAreArray;

TEST(Synthetic, HasTheSizeThatWasAskedFor) {
  const data::LabelledRows rows = make_synthetic_rows({20, 7, 3}, 0, 1);
  EXPECT_EQ(rows.num_rows(), 20u);
  EXPECT_EQ(rows.features.size(), 140u);
  EXPECT_EQ(rows.num_features, 7u);
  EXPECT_EQ(rows.num_classes, 3u);
  EXPECT_EQ(rows.row_shape, Shape{7});
  EXPECT_EQ(std::set(rows.labels.begin(), rows.labels.end()), (std::set<std::int64_t>{0, 1, 2}));
}

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

// Class means of the training rows classify other rows: what is learned carries over.
TEST(Synthetic, CanBeLearned) {
  constexpr std::size_t kFeatures = 64;
  constexpr std::size_t kClasses = 10;
  const data::LabelledRows train = make_synthetic_rows({1000, kFeatures, kClasses}, 0, 3);
  std::vector<double> sums(kClasses * kFeatures);
  std::vector<double> counts(kClasses);
  for (std::size_t i = 0; i < train.num_rows(); ++i) {
    const auto label = static_cast<std::size_t>(train.labels[i]);
    counts[label] += 1;
    for (std::size_t j = 0; j < kFeatures; ++j) sums[label * kFeatures + j] += train.row(i)[j];
  }
  const data::LabelledRows test = make_synthetic_rows({200, kFeatures, kClasses}, 1000, 3);
  std::size_t num_correct = 0;
  for (std::size_t i = 0; i < test.num_rows(); ++i) {
    std::size_t best = 0;
    double best_distance = std::numeric_limits<double>::max();
    for (std::size_t label = 0; label < kClasses; ++label) {
      double distance = 0;
      for (std::size_t j = 0; j < kFeatures; ++j) {
        const double difference = test.row(i)[j] - sums[label * kFeatures + j] / counts[label];
        distance += difference * difference;
      }
      if (distance < best_distance) {
        best_distance = distance;
        best = label;
      }
    }
    if (static_cast<std::int64_t>(best) == test.labels[i]) ++num_correct;
  }
  EXPECT_GE(num_correct, 180u);
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
