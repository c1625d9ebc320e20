// Labelled rows as two tensors, for the tutorials that are not about loading data (03 is).
#pragma once

#include <cstddef>

#include "engine/tensor/tensor.h"

namespace lockstep::tutorial {

struct Rows {
  Tensor x;       // [rows, features] float32
  Tensor labels;  // [rows] int64, on the same device

  std::size_t count() const { return x.size(0); }

  // Rows begin ... end - 1: a view on this device, a copy on another.
  Rows part(std::size_t begin, std::size_t end, Device device) const;
  Rows part(std::size_t begin, std::size_t end) const { return part(begin, end, x.device()); }

  // The rows of one of num_ranks ranks, copied to its device; the first ranks get one row more when
  // the rows cannot be cut evenly.
  Rows shard(std::size_t rank, std::size_t num_ranks, Device device) const;

  // The batch of step number `step`, in the rows' order, from the start again after each epoch. The
  // last batch of an epoch may be smaller.
  Rows batch(std::size_t step, std::size_t batch_size) const;
  std::size_t steps_per_epoch(std::size_t batch_size) const;
};

// The 1,500 digits that train, 64 pixels from 0 to 1 each.
Rows load_digits(Device device);

}  // namespace lockstep::tutorial
