#include "engine/data/augmentation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "engine/data/data_loader.h"
#include "tests/support/expect_error.h"

namespace lockstep::data {
namespace {

using lockstep::testing::expect_error;
using ::testing::Each;
using ::testing::ElementsAre;
using Bytes = std::vector<std::uint8_t>;

Bytes augmented(const AugmentationDraw& draw, const Shape& shape, const Bytes& image) {
  Bytes result(image.size(), 99);
  augment(draw, shape, image, result);
  return result;
}

TEST(Augmentation, CropsAndFlipsAnImage) {
  const Shape shape{2, 3, 1};
  const Bytes image{1, 2, 3,  //
                    4, 5, 6};
  EXPECT_EQ(augmented({}, shape, image), image);
  EXPECT_THAT(augmented({.is_flipped = true}, shape, image), ElementsAre(3, 2, 1, 6, 5, 4));
  EXPECT_THAT(augmented({.top = 5, .left = 4}, shape, image), ElementsAre(4, 5, 6, 0, 0, 0));
  EXPECT_THAT(augmented({.top = 4, .left = 3}, shape, image), ElementsAre(0, 1, 2, 0, 4, 5));
  EXPECT_THAT(augmented({.top = 3, .left = 5, .is_flipped = true}, shape, image),
              ElementsAre(0, 0, 0, 0, 3, 2));
  EXPECT_THAT(augmented({.top = 8, .left = 0}, shape, image), Each(0));
}

TEST(Augmentation, DrawsEveryWindowAndEveryFlipAboutAsOften) {
  std::map<std::pair<std::size_t, std::size_t>, int> windows;
  int num_flipped = 0;
  for (std::size_t row = 0; row < 8100; ++row) {
    const AugmentationDraw draw = draw_augmentation({.crop = true, .flip = true}, 3, 2, row);
    ++windows[{draw.top, draw.left}];
    num_flipped += draw.is_flipped;
  }
  EXPECT_EQ(windows.size(), 81u);
  for (const auto& [window, count] : windows) {
    EXPECT_LE(window.first, 2 * kCropPadding);
    EXPECT_GT(count, 60);
  }
  EXPECT_NEAR(num_flipped, 4050, 200);
}

TEST(Augmentation, IsDrawnBySeedEpochAndRow) {
  const Augmentation both{.crop = true, .flip = true};
  const auto draws = [&](std::uint64_t seed, std::uint64_t epoch) {
    std::vector<std::tuple<std::size_t, std::size_t, bool>> result;
    for (std::size_t row = 0; row < 50; ++row) {
      const AugmentationDraw draw = draw_augmentation(both, seed, epoch, row);
      result.emplace_back(draw.top, draw.left, draw.is_flipped);
    }
    return result;
  };
  EXPECT_EQ(std::set({draws(0, 0), draws(0, 1), draws(1, 0), draws(1, 1)}).size(), 4u);
  EXPECT_EQ(draws(1, 1), draws(1, 1));
  // An augmentation that is off is not drawn, and does not change the others.
  const AugmentationDraw draw = draw_augmentation(both, 0, 0, 7);
  EXPECT_EQ(draw_augmentation({}, 0, 0, 7), AugmentationDraw{});
  EXPECT_EQ(draw_augmentation({.crop = true}, 0, 0, 7),
            (AugmentationDraw{.top = draw.top, .left = draw.left}));
}

// Images of 5 x 5 pixels.
LabelledRows images(std::size_t num_rows) {
  LabelledRows rows;
  rows.name = "squares";
  rows.num_features = 25;
  rows.num_classes = 1;
  for (std::size_t i = 0; i < 25 * num_rows; ++i) {
    rows.features.push_back(static_cast<std::uint8_t>(1 + i % 255));
  }
  rows.labels.assign(num_rows, 0);
  return rows;
}

// The second epoch, batch by batch, of all ranks.
std::vector<float> second_epoch(int world_size, const Augmentation& augmentation) {
  std::vector<std::vector<float>> batches(5);
  for (int rank = 0; rank < world_size; ++rank) {
    DataLoader loader(images(22), {.batch = 5,
                                   .shuffle = true,
                                   .seed = 4,
                                   .rank = rank,
                                   .world_size = world_size,
                                   .row_shape = {5, 5, 1},
                                   .augmentation = augmentation});
    loader.start_epoch(1);
    auto batch_of_all = batches.begin();
    for (const Batch& batch : loader) {
      const std::vector<float> x = batch.x.to_vector<float>();
      batch_of_all->insert(batch_of_all->end(), x.begin(), x.end());
      ++batch_of_all;
    }
  }
  std::vector<float> all;
  for (const std::vector<float>& batch : batches) all.insert(all.end(), batch.begin(), batch.end());
  return all;
}

TEST(Augmentation, IsTheSameForAnySharding) {
  const Augmentation both{.crop = true, .flip = true};
  const std::vector<float> one = second_epoch(1, both);
  EXPECT_EQ(one.size(), 22u * 25);
  EXPECT_NE(one, second_epoch(1, {}));
  EXPECT_EQ(second_epoch(2, both), one);
  EXPECT_EQ(second_epoch(4, both), one);
}

TEST(Augmentation, RefusesRowsThatAreNoImages) {
  expect_error(ErrorCode::Shape,
               "only images are cropped and flipped, and rows of 'squares' have the shape [25]; "
               "set row_shape to [height, width, channels]",
               [] { DataLoader(images(3), {.augmentation = {.flip = true}}); });
}

}  // namespace
}  // namespace lockstep::data
