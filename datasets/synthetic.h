// Makes learnable rows of any size from a seed: for timing without a download.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/core/shape.h"
#include "engine/data/labelled_rows.h"

namespace lockstep::datasets {

struct SyntheticSize {
  std::size_t num_rows = 0;
  std::size_t num_features = 0;
  std::size_t num_classes = 0;
  Shape image = {};  // [height, width, channels], with as many elements as features; without: rows

  bool operator==(const SyntheticSize&) const = default;
};

// Makes rows first_row ... first_row + size.num_rows - 1 of the endless data set of that seed. Each
// class has a prototype of random bytes, and a row is (prototype of its class + 2 * noise) / 3,
// byte for byte, with a random class. Row r depends only on the seed, the numbers of features and
// classes and r, so further rows make a test set. Features are scaled by 1/255.
// REQUIRES: at least one row and feature, and at least two classes.
// Throws Error{Shape} for sizes that wrap around, Error{Usage} for no class.
data::LabelledRows make_synthetic_rows(const SyntheticSize& size, std::size_t first_row,
                                       std::uint64_t seed);

}  // namespace lockstep::datasets
