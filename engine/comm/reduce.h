// The arithmetic of a reduction: several ranks' values of the same elements become one value.
#pragma once

#include <functional>
#include <span>

#include "engine/comm/communicator.h"
#include "engine/plan/collective_plan.h"

namespace lockstep::comm {

// The meaning of `add` in a plan, and the stream whose device computes it.
struct Reduction {
  runtime::Stream& stream;
  ReduceOp op = ReduceOp::sum;
};

// y = sources[0] op sources[1] op ..., from the left, so that every caller gets the same bits. Each
// source of a sum is multiplied by the factor before it is added; other ops take factor 1. average
// works like sum here: the caller's factor makes the difference. min and max keep a NaN.
// Memory:  y may be one of the sources.
// Types:   float32, float64; bfloat16, float16 (combined in float, rounded once); int32, int64
//          (factor 1; sums and products wrap around).
// REQUIRES: at least one source; all have y's dtype and number of elements.
void reduce_in_order(runtime::Stream& stream, ReduceOp op, double factor,
                     std::span<const ConstTensorView> sources, TensorView y);

// The same for a product, min or max, on the CPU (combine.cpp).
void combine_in_order(ReduceOp op, std::span<const ConstTensorView> sources, TensorView y);

// Computes out = `mine` combined with the values that a receive's peers sent, in the order of
// ranks. source_of(peer): the peer's values.
// Memory: out may be mine.
void receive_chunk(const plan::Receive& receive, int rank, const Reduction& reduction,
                   const std::function<const void*(int peer)>& source_of, TensorView mine,
                   TensorView out);

// The factor by which every value of an average is multiplied before it is added; 1 for other ops.
double factor_of(ReduceOp op, int world_size);

// Multiplies values in place; takes every dtype that can be reduced.
void multiply(runtime::Stream& stream, double factor, TensorView values);

}  // namespace lockstep::comm
