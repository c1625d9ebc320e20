// Variable: a Tensor, its gradient, and the Node that computed it.
//
// A leaf (a parameter, an input) was made by the user; backward() adds its gradient to grad(). Any
// other variable remembers the node that made it, and through it the whole graph. Copying a
// Variable copies the handle.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "engine/core/thread_context.h"
#include "engine/tensor/tensor.h"

namespace lockstep {

// True if operations record how to differentiate themselves. It belongs to the line of work, and
// travels to other threads with ThreadContext.
inline bool grad_enabled() {
  return thread_context().grad_enabled;
}

// Inside this scope results do not require gradients.
class NoGradScope {
 public:
  NoGradScope() : saved_(thread_context().grad_enabled) { thread_context().grad_enabled = false; }
  ~NoGradScope() { thread_context().grad_enabled = saved_; }
  NoGradScope(const NoGradScope&) = delete;
  NoGradScope& operator=(const NoGradScope&) = delete;

 private:
  bool saved_;
};

class Node;
class Variable;

enum class RequiresGrad { no, yes };
enum class Graph { release, retain };

// Called when a leaf's gradient of this backward pass has been added to grad(). Runs on the line of
// work of the leaf's device.
using GradHook = std::function<void(const Variable& leaf)>;

// first: before the hooks that are there, such as Ddp's, so where the gradient is not averaged yet.
enum class HookOrder { first, last };

// The members of a Variable, which all its handles share; for the sources of this folder.
struct VariableImpl {
  Tensor value;
  bool requires_grad = false;

  // For the result of an operation.
  std::shared_ptr<Node> node;
  std::size_t output_index = 0;

  // For a leaf. Touched only by the line of work of the leaf's device while a backward pass runs.
  Tensor grad;
  Tensor grad_slot;
  bool slot_is_taken = false;  // a node has got the slot and will fill it
  std::vector<std::pair<std::uint64_t, GradHook>> hooks;
  std::uint64_t next_hook_id = 1;
};

class Variable {
 public:
  // An undefined variable: every member except defined(), is_same() and identity() throws
  // Error{State} as value() does.
  Variable() = default;
  explicit Variable(Tensor value, RequiresGrad requires_grad = RequiresGrad::no);

  bool defined() const { return impl_ != nullptr; }
  const Tensor& value() const { return checked().value; }
  const Shape& shape() const { return value().shape(); }
  Device device() const { return value().device(); }
  DType dtype() const { return value().dtype(); }

  // Replaces a leaf's tensor (to move a module to a device, or load weights).
  // Throws Error{State} for an undefined tensor, Error{DType} for an integer one if a gradient is
  // required, Error{Shape} if there is a gradient of another shape (clear it first).
  void set_value(Tensor value);

  // Changes a leaf's tensor in place, p.add_(p.grad(), -lr), without a gradient of the change.
  // Throws Error{State} unless this is a leaf, and as Tensor::add_ does.
  const Variable& add_(const Tensor& other, double factor = 1) const;
  double item() const { return value().item(); }

  // True if backward() would reach this variable.
  bool requires_grad() const { return checked().requires_grad; }
  // REQUIRES: a leaf with a floating dtype; else throws Error{State} or Error{DType}.
  void set_requires_grad(RequiresGrad requires_grad);
  bool is_leaf() const { return !checked().node; }
  const std::shared_ptr<Node>& node() const { return checked().node; }  // nullptr for a leaf
  // The number of this output of node().
  std::size_t output_index() const { return checked().output_index; }

  // The gradient of a leaf; undefined before the first backward() and after clear_grad().
  const Tensor& grad() const { return checked().grad; }
  // Throws Error{Shape}, Error{DType} or Error{Device} unless it is undefined or like the value.
  void set_grad(Tensor grad);
  // Forgets the gradient (PyTorch's zero_grad(set_to_none=True)).
  void clear_grad() { checked().grad = {}; }

  // Suggests memory for a leaf's gradient, such as its place in a bucket: nodes that can write it
  // there directly save a copy. An undefined tensor withdraws the suggestion.
  // Throws Error{Shape} unless slot has the value's shape, dtype and device.
  void set_grad_slot(Tensor slot);
  const Tensor& grad_slot() const { return checked().grad_slot; }

  // Registers a hook on a leaf, behind or before those that it has; the number names it in
  // remove_grad_hook. Throws Error{State} unless this is a leaf, Error{Usage} for an empty hook.
  std::uint64_t on_grad_ready(GradHook hook, HookOrder order = HookOrder::last);
  void remove_grad_hook(std::uint64_t id);

  // Adds d(this) / d(leaf) to the gradient of every leaf that requires one. `grad` is the gradient
  // with respect to this variable; it may be left out for one element (then it is 1).
  // Throws Error{State} if this needs no gradient, if an earlier backward() released the graph, or
  // if a leaf's tensor was replaced meanwhile by one that its gradient does not fit.
  void backward(Tensor grad = {}, Graph graph = Graph::release) const;

  // The same tensor, cut from the graph.
  Variable detach() const { return Variable(value()); }

  bool is_same(const Variable& other) const { return impl_ == other.impl_; }
  // An address that identifies this variable among all handles to it.
  const void* identity() const { return impl_.get(); }

 private:
  friend struct GraphAccess;

  VariableImpl& checked() const {
    if (!impl_) [[unlikely]]
      fail_undefined();
    return *impl_;
  }
  [[noreturn]] static void fail_undefined();

  std::shared_ptr<VariableImpl> impl_;
};

}  // namespace lockstep
