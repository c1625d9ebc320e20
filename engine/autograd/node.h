// Node: one operation in the graph, with its backward function.
//
// Every operation is one function in ops/ that computes the result and records a node:
//   return record("Multiply", {a, b}, y, {saved tensors...}, backward);
// The backward function is a lambda in the same place. What it needs of forward is a saved tensor,
// which node.saved() checks; numbers it captures.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "engine/autograd/variable.h"
#include "engine/tensor/tensor.h"

namespace lockstep {

using Gradients = std::vector<Tensor>;

// A kernel argument that may be absent.
inline TensorView view_or_none(const Tensor& tensor) {
  return tensor.defined() ? tensor.view() : TensorView{};
}

// The rows of a tensor's last dimension: [..., features] as a matrix.
inline MatrixView rows_of(const Tensor& tensor) {
  const std::size_t features = tensor.size(tensor.num_dims() - 1);
  return matrix_view(tensor.raw(), tensor.dtype(),
                     features == 0 ? 0 : tensor.num_elements() / features, features);
}

// The way of one input's gradient: to the node that made the input, or to a leaf. It holds where
// the input came from, not its values, so that only tensors which a backward function needs stay
// alive.
struct Edge {
  std::shared_ptr<Node> node;    // nullptr for a leaf
  std::size_t output_index = 0;  // number of the node's output
  Variable leaf;                 // undefined unless the input is a leaf
  Shape shape;
  DType dtype = DType::float32;
  Device device;

  bool is_wanted() const { return node || leaf.defined(); }
};
// The edge to a variable's origin. REQUIRES: it requires a gradient.
Edge edge_to(const Variable& variable);

class Node {
 public:
  // grad_outputs has one tensor per output, which is undefined if no gradient arrived. Returns one
  // per input, undefined if !wants_gradient(input). Gradients are overwritten, never added: the
  // backward pass adds. A returned tensor may be one of grad_outputs.
  using Backward = std::function<Gradients(const Node& node, const Gradients& grad_outputs)>;

  // name: "Linear", "Add", for traces, errors and printed graphs. device: its line of work runs
  // backward().
  Node(const char* name, std::span<const Variable> inputs, std::size_t num_outputs, Device device,
       std::initializer_list<Tensor> saved, Backward backward);
  ~Node();
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  const char* name() const { return name_; }
  Gradients backward(const Gradients& grad_outputs) const { return backward_(*this, grad_outputs); }

  Device device() const { return device_; }
  std::size_t num_inputs() const { return edges_.size(); }
  std::size_t num_outputs() const { return num_outputs_; }
  const Edge& edge(std::size_t input) const { return edges_[input]; }
  bool wants_gradient(std::size_t input) const { return edges_[input].is_wanted(); }
  // Grows with each creation: later nodes run backward first.
  std::uint64_t sequence() const { return sequence_; }

  // The i-th tensor that forward kept; it may be undefined. If it was changed in place since,
  // throws Error{State} that names the operation, the tensor and both versions, because the
  // gradient would belong to other values.
  const Tensor& saved(std::size_t i) const;
  // The same for its sizes only: its elements may have been changed.
  const Tensor& unchecked(std::size_t i) const { return saved_[i].first; }

  // Uninitialised memory for the gradient of an input: the leaf's slot if it has a free one (see
  // Variable::set_grad_slot), else new memory.
  Tensor gradient_buffer(std::size_t input) const;
  // One for each input that wants a gradient.
  Gradients gradient_buffers() const;

 private:
  friend class BackwardPass;
  friend Variable record(const char*, std::initializer_list<Variable>, Tensor,
                         std::initializer_list<Tensor>, Backward);

  const char* name_;
  std::vector<Edge> edges_;
  std::size_t num_outputs_;
  Device device_;
  std::vector<std::pair<Tensor, std::uint64_t>> saved_;  // and their versions (Tensor::version)
  Backward backward_;
  std::shared_ptr<const void> observed_;  // what the observer keeps with it
  std::uint64_t sequence_;
  bool released_ = false;
};

// Adds a gradient of this backward pass to a leaf. The tensor itself is used if nothing else holds
// it, else it is copied.
void add_leaf_gradient(const Variable& leaf, Tensor gradient);

// Calls the leaf's hooks. Called once per backward pass, when its last gradient has been added.
void call_leaf_hooks(const Variable& leaf);

// Gives Node and the backward pass access to a variable's members.
struct GraphAccess {
  static VariableImpl& impl(const Variable& variable) { return *variable.impl_; }
  static Variable make_result(Tensor value, std::shared_ptr<Node> node, std::size_t output_index);
};

// Wraps a result; makes a node only if one is needed. Inputs may be undefined, such as no bias.
Variable record(const char* name, std::initializer_list<Variable> inputs, Tensor result,
                std::initializer_list<Tensor> saved, Node::Backward backward);

// The same for several results, whose backward runs on `device`.
std::vector<Variable> record_many(const char* name, std::span<const Variable> inputs,
                                  std::vector<Tensor> results, Device device,
                                  Node::Backward backward);

}  // namespace lockstep
