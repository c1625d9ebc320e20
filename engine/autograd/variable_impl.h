// What stands behind a Variable. Included by the autograd sources only.
#pragma once

#include <vector>

#include "engine/autograd/variable.h"

namespace lockstep {

struct VariableImpl {
  Tensor value;
  bool requires_grad = false;

  // For the result of an operation.
  std::shared_ptr<Node> node;
  std::size_t output_index = 0;

  // For a leaf. Touched only by the line of work of the leaf's device while a backward pass runs.
  Tensor grad;
  Tensor grad_slot;
  bool slot_is_taken = false;  // a node has been given the slot, its gradient is on the way
  std::vector<std::pair<std::uint64_t, GradHook>> hooks;
  std::uint64_t next_hook_id = 1;
};

// Adds a gradient of this backward pass to a leaf. It is taken over where nobody else holds it,
// else copied.
void add_leaf_gradient(const Variable& leaf, Tensor gradient);

// Calls the leaf's hooks; once per backward pass, when its last gradient has been added.
void call_leaf_hooks(const Variable& leaf);

// Gives Node and the backward pass access to a variable's insides.
struct GraphAccess {
  static VariableImpl& impl(const Variable& variable) { return *variable.impl_; }
  static Variable make_result(Tensor value, std::shared_ptr<Node> node, std::size_t output_index);
};

}  // namespace lockstep
