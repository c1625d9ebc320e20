#include "engine/data/augmentation.h"

#include <algorithm>

#include "engine/core/rng.h"

namespace lockstep::data {

namespace {

constexpr std::uint32_t kAugment = 0x6175676du;  // "augm"

// Uniform in 0 ... bound - 1, except for a bias of bound / 2^32.
std::size_t below(std::uint32_t word, std::size_t bound) {
  return static_cast<std::size_t>(std::uint64_t{word} * bound >> 32);
}

}  // namespace

AugmentationDraw draw_augmentation(const Augmentation& augmentation, std::uint64_t seed,
                                   std::uint64_t epoch, std::size_t row) {
  const PhiloxBlock words =
      philox({static_cast<std::uint32_t>(row), static_cast<std::uint32_t>(std::uint64_t{row} >> 32),
              static_cast<std::uint32_t>(epoch), kAugment},
             seed);
  AugmentationDraw draw;
  if (augmentation.crop) {
    draw.top = below(words[0], 2 * kCropPadding + 1);
    draw.left = below(words[1], 2 * kCropPadding + 1);
  }
  draw.is_flipped = augmentation.flip && below(words[2], 2) == 1;
  return draw;
}

void augment(const AugmentationDraw& draw, const Shape& shape, std::span<const std::uint8_t> image,
             std::span<std::uint8_t> result) {
  const std::size_t height = shape[0], width = shape[1], channels = shape[2];
  for (std::size_t i = 0; i < height; ++i) {
    for (std::size_t j = 0; j < width; ++j) {
      const auto to = result.subspan((i * width + j) * channels, channels);
      const std::size_t y = i + draw.top - kCropPadding;  // wraps around above the image
      const std::size_t x = (draw.is_flipped ? width - 1 - j : j) + draw.left - kCropPadding;
      if (y < height && x < width) {
        std::ranges::copy(image.subspan((y * width + x) * channels, channels), to.begin());
      } else {
        std::ranges::fill(to, std::uint8_t{0});
      }
    }
  }
}

}  // namespace lockstep::data
