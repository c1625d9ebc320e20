// A data set in memory: rows of bytes, each with its class; or a text, whose rows are windows of
// its tokens.
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
#include "engine/data/sampler.h"
#include "engine/tensor/tensor.h"

namespace lockstep::data {

struct LabelledRows {
  std::string name;                    // "mnist"
  std::vector<std::uint8_t> features;  // [num_rows, num_features], row-major
  std::vector<std::int64_t> labels;    // [num_rows], each in 0 ... num_classes - 1
  std::size_t num_features = 0;
  std::size_t num_classes = 0;
  double scale = 1;  // a feature's value is its byte times scale
  Shape row_shape;   // a row before it was flattened: [28, 28]
  // A text has tokens instead of features and labels: row r is the num_features tokens from r on,
  // and its labels are the token after each. num_classes: the size of the vocabulary.
  std::vector<std::uint16_t> tokens;

  bool is_text() const { return !tokens.empty(); }
  // Counts the windows of a text that do not overlap.
  std::size_t num_rows() const {
    return is_text() ? (tokens.size() - 1) / num_features : labels.size();
  }
  std::size_t labels_per_row() const { return is_text() ? num_features : 1; }
  TextWindows windows() const {
    return is_text() ? TextWindows{num_features, tokens.size() - num_features} : TextWindows{};
  }
  bool has_row(std::size_t row) const {
    if (!is_text()) return row < labels.size();
    return num_features < tokens.size() && row < tokens.size() - num_features;
  }
  // The bytes of a row in a batch (for a text int64 tokens), and its labels.
  std::size_t row_bytes() const {
    return is_text() ? num_features * sizeof(std::int64_t) : num_features;
  }
  // REQUIRES: has_row(row).
  void write_row(std::size_t row, void* bytes, std::int64_t* labels_of_row) const;
  // [height, width, channels] if rows are images; else no dimensions.
  Shape image_shape() const;

  // REQUIRES: index < num_rows().
  std::span<const std::uint8_t> row(std::size_t index) const {
    return std::span(features).subspan(index * num_features, num_features);
  }
};

// A data set as two tensors, for programs that take their batches by hand. The sampler says which
// rows:
//
//   for (const BatchShard& shard : exact_batches({...}, epoch)) {
//     const auto [x, labels] = train.take(shard.rows, device);
//
// data_loader.h does the same on a thread of its own, from bytes.
struct LabelledTensors {
  Tensor x;       // [rows, num_features]
  Tensor labels;  // [rows] int64

  std::size_t num_rows() const { return x.size(0); }

  // Copies the rows with these numbers, in this order, to a device. Several threads may call it at
  // once.
  // Throws Error{Device} unless the data set is on the CPU, Error{Usage} for a row that it does not
  // have.
  LabelledTensors take(const std::vector<std::size_t>& rows, Device device) const;
};

// All rows as float32 on cpu:0, each byte times the data set's scale.
LabelledTensors to_tensors(const LabelledRows& rows);

}  // namespace lockstep::data
