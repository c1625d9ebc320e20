// Random crops and flips of images. A draw depends only on (seed, epoch, row of the data set), so
// devices see the same images however they share a batch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "engine/core/shape.h"

namespace lockstep::data {

struct Augmentation {
  bool crop = false;  // moves an image by at most kCropPadding pixels and fills in black
  bool flip = false;  // mirrors every second image, left to right

  bool is_none() const { return !crop && !flip; }
};

inline constexpr std::size_t kCropPadding = 4;

// The change of one image: it gets kCropPadding black pixels on every side, a window of its own
// size is cut out at (top, left), and the window is mirrored or not.
struct AugmentationDraw {
  std::size_t top = kCropPadding;
  std::size_t left = kCropPadding;
  bool is_flipped = false;

  bool operator==(const AugmentationDraw&) const = default;
};

// Uniform over windows and flips: words 0 to 2 of philox({row low, row high, epoch, kAugment},
// seed), which no other draw uses.
// Source: PyTorch's RandomCrop(size, padding=4), then RandomHorizontalFlip().
AugmentationDraw draw_augmentation(const Augmentation& augmentation, std::uint64_t seed,
                                   std::uint64_t epoch, std::size_t row);

// Writes the drawn window of the image into result.
// Shapes: image, result [height, width, channels], as `shape` says; they must not overlap.
void augment(const AugmentationDraw& draw, const Shape& shape, std::span<const std::uint8_t> image,
             std::span<std::uint8_t> result);

}  // namespace lockstep::data
