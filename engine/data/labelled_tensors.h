// A data set as two tensors, for programs that take their batches from it by hand. The sampler says
// which rows:
//
//   for (const BatchShard& shard : exact_batches({...}, epoch)) {
//     const auto [x, labels] = train.take(shard.rows, device);
//
// data_loader.h does the same on a thread of its own, from bytes.
#pragma once

#include <cstddef>
#include <vector>

#include "engine/data/labelled_rows.h"
#include "engine/tensor/tensor.h"

namespace lockstep::data {

struct LabelledTensors {
  Tensor x;       // [rows, num_features]
  Tensor labels;  // [rows] int64

  std::size_t num_rows() const { return x.size(0); }

  // A copy, on a device, of the rows with these numbers, in this order. It may be called from
  // several threads at once.
  // Throws Error{Device} unless the data set is on the CPU, Error{Usage} for a row that it does not
  // have.
  LabelledTensors take(const std::vector<std::size_t>& rows, Device device) const;
};

// All rows as float32 on cpu:0, each byte times the data set's scale.
LabelledTensors to_tensors(const LabelledRows& rows);

}  // namespace lockstep::data
