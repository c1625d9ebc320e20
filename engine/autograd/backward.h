// The backward pass: Variable::backward() walks the graph from a result to the leaves.
//
// All state belongs to the call, so any number of them may run at once. A node runs when all
// gradients of its outputs have arrived, later nodes first. Nodes of the caller's device run on the
// caller's thread; those of other devices on the workers of these devices, so replicas run
// backward at the same time; with Issue::by_caller (thread_context.h) the caller's thread runs them
// all. The caller's ThreadContext goes with the work.
#pragma once

#include <cstdint>
#include <functional>

#include "engine/autograd/variable.h"

namespace lockstep {

// See Variable::backward. Returns when every gradient is in place; rethrows the first error of a
// node or a hook.
void run_backward(const Variable& root, Tensor grad, Graph graph);

// A scalar for backward() to begin with, on a device: kept, since to write it again in every step
// would be one more kernel on a GPU (a gradient that others hold too is never changed). Few
// different values are expected. 1 is what backward() takes where it is given nothing.
Tensor kept_scalar(double value, DType dtype, Device device);

// From a hook: has `finish` called once, on the thread that called backward(), when all gradients
// of the running pass are in place. Throws Error{State} outside a backward pass.
void on_backward_end(std::function<void()> finish);

// The number of the calling thread's pass, from 1; 0 outside a pass.
std::uint64_t running_pass_number();

}  // namespace lockstep
