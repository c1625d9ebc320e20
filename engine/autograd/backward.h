// The backward pass: Variable::backward() walks the graph from a result to the leaves.
//
// All state belongs to the call, so any number of calls may run at once. A node runs when all
// gradients of its outputs have arrived, later nodes first. Nodes of the caller's device run on the
// caller's thread; those of other devices run on these devices' workers, so that replicas run
// backward at the same time. With Issue::by_caller (thread_context.h) the caller's thread runs them
// all. The caller's ThreadContext goes with the work.
#pragma once

#include <cstdint>
#include <functional>

#include "engine/autograd/variable.h"

namespace lockstep {

// See Variable::backward. Returns when every gradient is in place; rethrows the first error of a
// node or a hook.
void run_backward(const Variable& root, Tensor grad, Graph graph);

// A scalar on a device with which backward() begins. It is kept, because writing it in every step
// would take another kernel on a GPU (a gradient that others hold too is never changed). Few
// different values are expected. backward() without an argument takes 1.
Tensor kept_scalar(double value, DType dtype, Device device);

// Call it from a hook: `finish` is called once, on the thread that called backward(), when all
// gradients of the running pass are in place. Throws Error{State} outside a backward pass.
void on_backward_end(std::function<void()> finish);

// The number of the calling thread's pass, from 1; 0 outside a pass.
std::uint64_t running_pass_number();

}  // namespace lockstep
