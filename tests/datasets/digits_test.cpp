#include "datasets/digits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <algorithm>

namespace lockstep::datasets {
namespace {

using ::testing::Each;
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
