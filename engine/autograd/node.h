// Node: one operation in the graph, with its backward function.
//
// Every operation is one named class with forward and backward in one file (ops/). To add one:
//   1. derive from Node, keep what backward needs as SavedTensor members, read them with unpack(),
//      list them in release_saved();
//   2. compute the forward result, then `return record<MyNode>({x, y}, result, saved...)`.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "engine/autograd/variable.h"
#include "engine/runtime/device_span.h"
#include "engine/tensor/tensor.h"

namespace lockstep {

// A tensor that a node keeps from forward for backward, with the version (Tensor::version) that it
// had then. Node::unpack() returns it, and refuses one that has been changed in place since.
class SavedTensor {
 public:
  SavedTensor() = default;  // undefined
  // Not explicit, so that nodes can pass tensors.
  SavedTensor(Tensor tensor)
      : tensor_(std::move(tensor)), version_(tensor_.defined() ? tensor_.version() : 0) {}

  bool defined() const { return tensor_.defined(); }
  std::uint64_t version() const { return version_; }
  bool was_changed() const { return tensor_.defined() && tensor_.version() != version_; }
  // For its sizes only: its elements may have been changed.
  const Tensor& unchecked() const { return tensor_; }

 private:
  Tensor tensor_;
  std::uint64_t version_ = 0;
};

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
  std::size_t output_index = 0;  // of node
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
  Node() = default;
  virtual ~Node();
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  // "Linear", "Add": for traces, errors and printed graphs.
  virtual const char* name() const = 0;

  // grad_outputs has one tensor per output, which is undefined if no gradient arrived. Returns one
  // per input, undefined if !wants_gradient(input). Gradients are overwritten, never added: the
  // backward pass adds. A returned tensor may be one of grad_outputs.
  virtual Gradients backward(const Gradients& grad_outputs) = 0;

  // Drops the tensors that forward kept, if any.
  virtual void release_saved() {}

  // The device whose line of work runs backward(): the outputs' device, unless connect() got
  // another one.
  Device device() const { return device_; }
  std::size_t num_inputs() const { return edges_.size(); }
  std::size_t num_outputs() const { return num_outputs_; }
  const Edge& edge(std::size_t input) const { return edges_[input]; }
  // Grows with each creation: later nodes run backward first.
  std::uint64_t sequence() const { return sequence_; }

  // Called by record().
  void connect(std::span<const Variable> inputs, std::size_t num_outputs, Device device);

 protected:
  bool wants_gradient(std::size_t input) const { return edges_[input].is_wanted(); }

  // The tensor that forward kept. If it was changed in place since, throws Error{State} that names
  // the operation, the tensor and both versions, because the gradient would belong to other values.
  const Tensor& unpack(const SavedTensor& saved) const {
    if (saved.was_changed()) [[unlikely]]
      fail_changed(saved);
    return saved.unchecked();
  }

  // Uninitialised memory for the gradient of an input: the leaf's slot if it has a free one (see
  // Variable::set_grad_slot), else new memory.
  Tensor gradient_buffer(std::size_t input) const;
  // One for each input that wants a gradient.
  Gradients gradient_buffers() const;

 private:
  friend class BackwardPass;

  [[noreturn]] void fail_changed(const SavedTensor& saved) const;

  std::vector<Edge> edges_;
  std::size_t num_outputs_ = 1;
  Device device_;
  std::uint64_t sequence_ = 0;
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

// True if an operation on these inputs has to be recorded.
bool needs_node(std::span<const Variable> inputs);

// Wraps a result; makes a node of type NodeType(saved...) only if one is needed.
template <typename NodeType, typename... Saved>
Variable record(std::initializer_list<Variable> inputs, Tensor result, Saved&&... saved) {
  const std::span<const Variable> all(inputs.begin(), inputs.size());
  if (trace::recording()) [[unlikely]]
    runtime::sample_memory(result.logical_device());
  if (!needs_node(all)) return Variable(std::move(result));
  auto node = std::make_shared<NodeType>(std::forward<Saved>(saved)...);
  node->connect(all, 1, result.device());
  return GraphAccess::make_result(std::move(result), std::move(node), 0);
}

// The same for several results, whose backward runs on `device`.
template <typename NodeType, typename... Saved>
std::vector<Variable> record_many(std::span<const Variable> inputs, std::vector<Tensor> results,
                                  Device device, Saved&&... saved) {
  std::vector<Variable> outputs;
  std::shared_ptr<Node> node;
  if (needs_node(inputs)) {
    node = std::make_shared<NodeType>(std::forward<Saved>(saved)...);
    node->connect(inputs, results.size(), device);
  }
  for (std::size_t i = 0; i < results.size(); ++i) {
    outputs.push_back(node ? GraphAccess::make_result(std::move(results[i]), node, i)
                           : Variable(std::move(results[i])));
  }
  return outputs;
}

}  // namespace lockstep
