// The backward pass: Variable::backward() walks the graph from a result to the leaves.
//
// All state belongs to the call, so any number of calls may run at once. A node runs when all
// gradients of its outputs have arrived, later nodes first, on its device's line of work
// (device_tasks.h).
#pragma once

#include <cstdint>
#include <functional>

#include "engine/autograd/variable.h"

namespace lockstep {

// See Variable::backward. Returns when every gradient is in place; rethrows the first error of a
// node or a hook.
void run_backward(const Variable& root, Tensor grad, Graph graph);

// Call it from a hook: `finish` is called once, on the thread that called backward(), when all
// gradients of the running pass are in place. Throws Error{State} outside a backward pass.
void on_backward_end(std::function<void()> finish);

// The number of the calling thread's pass, from 1; 0 outside a pass.
std::uint64_t running_pass_number();

}  // namespace lockstep
