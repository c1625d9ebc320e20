#include "datasets/synthetic.h"

#include <algorithm>
#include <span>

#include "engine/core/rng.h"
#include "engine/core/shape.h"

namespace lockstep::datasets {
namespace {

// The streams of one seed: rows count up from 0, prototypes down from the end.
Rng rng_of_row(std::uint64_t seed, std::size_t row) {
  return Rng(seed, row);
}
Rng rng_of_prototype(std::uint64_t seed, std::size_t label) {
  return Rng(seed, ~label);
}

// Uniform random bytes, four from each random word.
void fill_bytes(Rng& rng, std::span<std::uint8_t> bytes) {
  for (std::size_t begin = 0; begin < bytes.size(); begin += 4) {
    const std::uint32_t word = rng.next_word();
    const std::size_t count = std::min<std::size_t>(4, bytes.size() - begin);
    for (std::size_t i = 0; i < count; ++i) {
      bytes[begin + i] = static_cast<std::uint8_t>(word >> (8 * i));
    }
  }
}

}  // namespace

data::LabelledRows make_synthetic_rows(const SyntheticSize& size, std::size_t first_row,
                                       std::uint64_t seed) {
  const auto num_bytes = [&size](std::size_t num_rows) {
    return checked_product("synthetic", num_rows, size.num_features);
  };
  const std::size_t num_feature_bytes = num_bytes(size.num_rows);
  std::vector<std::uint8_t> prototypes(num_bytes(size.num_classes));
  for (std::size_t label = 0; label < size.num_classes; ++label) {
    Rng rng = rng_of_prototype(seed, label);
    fill_bytes(rng, std::span(prototypes).subspan(label * size.num_features, size.num_features));
  }

  data::LabelledRows rows;
  rows.name = "synthetic";
  rows.features.resize(num_feature_bytes);
  rows.num_features = size.num_features;
  rows.num_classes = size.num_classes;
  rows.scale = 1.0 / 255;
  rows.row_shape = size.image.num_dims() == 0 ? Shape{size.num_features} : size.image;
  for (std::size_t i = 0; i < size.num_rows; ++i) {
    Rng rng = rng_of_row(seed, first_row + i);
    const std::uint64_t label = rng.below(size.num_classes);
    rows.labels.push_back(static_cast<std::int64_t>(label));
    const auto row = std::span(rows.features).subspan(i * size.num_features, size.num_features);
    fill_bytes(rng, row);
    const std::uint8_t* prototype = prototypes.data() + label * size.num_features;
    for (std::size_t j = 0; j < row.size(); ++j) {
      row[j] = static_cast<std::uint8_t>((prototype[j] + 2u * row[j]) / 3u);
    }
  }
  return rows;
}

}  // namespace lockstep::datasets
