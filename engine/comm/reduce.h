// The arithmetic of a reduction: several ranks' values of the same elements become one value.
#pragma once

#include <functional>
#include <span>

#include "engine/comm/communicator.h"
#include "engine/plan/collective_plan.h"
#include "kernels/calls.h"

namespace lockstep::comm {

// The meaning of `add` in a plan, and the stream whose device computes it.
struct Reduction {
  runtime::Stream& stream;
  ReduceOp op = ReduceOp::sum;
};

// By the kernel of the stream's device.
void reduce(runtime::Stream& stream, const kernels::OrderedReduce& call);

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
