// Labelled rows as two tensors, for the tutorials that are not about loading data (03 is).
#pragma once

#include "engine/tensor/tensor.h"

namespace lockstep::tutorial {

struct Rows {
  Tensor x;       // [rows, features] float32
  Tensor labels;  // [rows] int64, on the same device

  int count() const { return static_cast<int>(x.size(0)); }

  // Rows begin ... end - 1: a view on this device, a copy on another.
  Rows part(int begin, int end, Device device) const;
  Rows part(int begin, int end) const { return part(begin, end, x.device()); }

  // The rows of one of num_ranks ranks, copied to its device; the first ranks get one row more if
  // the rows cannot be cut evenly.
  Rows shard(int rank, int num_ranks, Device device) const;

  // The batch of step number `step`, in the rows' order, from the start again after each epoch. The
  // last batch of an epoch may be smaller.
  Rows batch(int step, int batch_size) const;
  int steps_per_epoch(int batch_size) const;
};

// The 1,500 digits that train, 64 pixels from 0 to 1 each.
Rows load_digits(Device device);

}  // namespace lockstep::tutorial
