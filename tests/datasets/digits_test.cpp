#include "datasets/digits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <algorithm>

namespace lockstep::datasets {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::Le;

TEST(Digits, HaveTheShapeAndScaleOfTheDataSet) {
  const data::LabelledRows rows = load_digits(0, kNumDigits);
  EXPECT_EQ(rows.num_rows(), 1797u);
  EXPECT_EQ(rows.num_features, 64u);
  EXPECT_EQ(rows.features.size(), 1797u * 64u);
  EXPECT_EQ(rows.num_classes, 10u);
  EXPECT_EQ(rows.row_shape, (Shape{8, 8}));
  EXPECT_EQ(rows.scale, 0.0625);
  EXPECT_THAT(rows.features, Each(Le(16)));
}

TEST(Digits, AreTheUciRowsInTheFilesOrder) {
  const data::LabelledRows rows = load_digits(0, kNumDigits);
  EXPECT_THAT(rows.row(0),
              ElementsAreArray({0, 0, 5,  13, 9,  1,  0, 0, 0, 0, 13, 15, 10, 15, 5, 0,
                                0, 3, 15, 2,  0,  11, 8, 0, 0, 4, 12, 0,  0,  8,  8, 0,
                                0, 5, 8,  0,  0,  9,  8, 0, 0, 4, 11, 0,  1,  12, 7, 0,
                                0, 2, 14, 5,  10, 12, 0, 0, 0, 0, 6,  13, 10, 0,  0, 0}));
  EXPECT_EQ(rows.labels.front(), 0);
  EXPECT_THAT(rows.row(1796),
              ElementsAreArray({0, 0, 10, 14, 8,  1,  0, 0, 0, 2, 16, 14, 6,  1,  0, 0,
                                0, 0, 15, 15, 8,  15, 0, 0, 0, 0, 5,  16, 16, 10, 0, 0,
                                0, 0, 12, 15, 15, 12, 0, 0, 0, 4, 16, 6,  4,  16, 6, 0,
                                0, 8, 16, 10, 8,  16, 8, 0, 0, 1, 8,  12, 14, 12, 1, 0}));
  EXPECT_EQ(rows.labels.back(), 8);
}

TEST(Digits, HaveTheKnownNumberOfRowsInEachClass) {
  const data::LabelledRows rows = load_digits(0, kNumDigits);
  std::vector<std::ptrdiff_t> counts;
  for (std::int64_t digit = 0; digit < 10; ++digit) {
    counts.push_back(std::ranges::count(rows.labels, digit));
  }
  EXPECT_THAT(counts, ElementsAre(178, 182, 177, 183, 181, 182, 181, 179, 174, 180));
}

// The CRC-32 of all pixels, then all labels, as bytes, computed from scikit-learn's copy.
TEST(Digits, HaveTheChecksumOfTheSource) {
  const data::LabelledRows rows = load_digits(0, kNumDigits);
  const std::vector<Bytef> labels(rows.labels.begin(), rows.labels.end());
  uLong checksum = crc32(0, rows.features.data(), static_cast<uInt>(rows.features.size()));
  checksum = crc32(checksum, labels.data(), static_cast<uInt>(labels.size()));
  EXPECT_EQ(checksum, 0xb89daea8u);
}

TEST(Digits, AreCutIntoRangesOfRows) {
  const data::LabelledRows all = load_digits(0, kNumDigits);
  const data::LabelledRows test = load_digits(kNumTrainDigits, kNumDigits);
  EXPECT_EQ(test.num_rows(), 297u);
  EXPECT_THAT(test.row(0), ElementsAreArray(all.row(1500)));
  EXPECT_EQ(test.labels[0], all.labels[1500]);
}

TEST(Digits, AreTensorsToTrainAndToTestWith) {
  const Digits digits = load_digits();
  EXPECT_EQ(digits.train.x.shape(), (Shape{1500, 64}));
  EXPECT_EQ(digits.test.labels.shape(), (Shape{297}));
  const data::LabelledRows test = load_digits(kNumTrainDigits, kNumDigits);
  EXPECT_EQ(digits.test.x.to_vector<float>()[2], 0.0625 * static_cast<float>(test.features[2]));
  EXPECT_EQ(digits.test.labels.to_vector<std::int64_t>(), test.labels);
}

}  // namespace
}  // namespace lockstep::datasets
