// Lab 11: several backward passes, one all-reduce. README.md says what is to be done.
#pragma once

#include <vector>

#include "engine/parallel/ddp/ddp.h"

namespace lab {

// Some rows of this rank's shard: x [rows, in], target [rows, out].
struct MicroBatch {
  lockstep::Tensor x;
  lockstep::Tensor target;
};

// One forward and backward pass: adds to the model's gradients those of weight * the mean squared
// error of the micro-batch.
void backward_of(lockstep::parallel::Ddp& model, const MicroBatch& micro, double weight);

// Adds to the model's gradients those of the mean squared error over all micro-batches of all
// ranks, which have the same number of rows. All but the last micro-batch add up locally, under
// model.no_sync(), forward and backward; the last one's backward all-reduces the sum.
// Cost: the all-reduces of one backward pass, however many micro-batches there are.
void accumulate(lockstep::parallel::Ddp& model, const std::vector<MicroBatch>& micro_batches);

}  // namespace lab
