// A data set in memory: rows of bytes, each with the class it belongs to.
//
// Pixels stay bytes until a batch is made: a batch then moves a quarter of the memory, and the
// device converts it (value * scale) while it gathers the rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/core/shape.h"

namespace lockstep::data {

struct LabelledRows {
  std::string name;                    // "mnist"
  std::vector<std::uint8_t> features;  // [num_rows, num_features], row-major
  std::vector<std::int64_t> labels;    // [num_rows], each in 0 ... num_classes - 1
  std::size_t num_features = 0;
  std::size_t num_classes = 0;
  float scale = 1.0f;  // a feature's value is its byte times scale
  Shape row_shape;     // of one row before it was flattened: [28, 28]

  std::size_t num_rows() const { return labels.size(); }

  // REQUIRES: index < num_rows().
  std::span<const std::uint8_t> row(std::size_t index) const {
    return std::span(features).subspan(index * num_features, num_features);
  }
};

}  // namespace lockstep::data
