#include "engine/autograd/node.h"

#include <algorithm>
#include <atomic>

#include "engine/autograd/variable.h"
#include "engine/core/error.h"
#include "engine/runtime/device_span.h"
#include "engine/trace/observer.h"

namespace lockstep {
namespace {

// An optional input, such as a bias, may be undefined.
bool requires_grad(const Variable& input) {
  return input.defined() && input.requires_grad();
}

}  // namespace

Edge edge_to(const Variable& variable) {
  return {.node = variable.node(),
          .output_index = variable.output_index(),
          .leaf = variable.is_leaf() ? variable : Variable(),
          .shape = variable.shape(),
          .dtype = variable.dtype(),
          .device = variable.device()};
}

Node::Node(const char* name, std::span<const Variable> inputs, std::size_t num_outputs,
           Device device, std::initializer_list<Tensor> saved, Backward backward)
    : name_(name), num_outputs_(num_outputs), device_(device), backward_(std::move(backward)) {
  static std::atomic<std::uint64_t> next_sequence{1};
  edges_.reserve(inputs.size());
  for (const Variable& input : inputs) {
    edges_.push_back(requires_grad(input) ? edge_to(input) : Edge{});
  }
  saved_.reserve(saved.size());
  for (const Tensor& tensor : saved) {
    saved_.emplace_back(tensor, tensor.defined() ? tensor.version() : 0);
  }
  sequence_ = next_sequence.fetch_add(1, std::memory_order_relaxed);
}

Node::~Node() {
  // A graph may be as deep as a program is long, so it is freed without recursion.
  std::vector<std::shared_ptr<Node>> pending;
  const auto take = [&pending](Node& node) {
    for (Edge& edge : node.edges_) {
      if (edge.node) pending.push_back(std::move(edge.node));
    }
  };
  take(*this);
  while (!pending.empty()) {
    const std::shared_ptr<Node> node = std::move(pending.back());
    pending.pop_back();
    if (node.use_count() == 1) take(*node);
  }
}

Gradients Node::gradient_buffers() const {
  Gradients grads(num_inputs());
  for (std::size_t i = 0; i < grads.size(); ++i) {
    if (wants_gradient(i)) grads[i] = gradient_buffer(i);
  }
  return grads;
}

Tensor Node::gradient_buffer(std::size_t input) const {
  const Edge& edge = edges_[input];
  if (edge.leaf.defined() && edge.device == device_) {
    VariableImpl& impl = GraphAccess::impl(edge.leaf);
    if (impl.grad_slot.defined() && !impl.grad.defined() && !impl.slot_is_taken) {
      impl.slot_is_taken = true;
      impl.grad_slot.bump_version();
      return impl.grad_slot;
    }
  }
  return Tensor::empty(edge.shape, edge.dtype, edge.device);
}

const Tensor& Node::saved(std::size_t i) const {
  const auto& [tensor, version] = saved_[i];
  if (tensor.defined() && tensor.version() != version) {
    fail(ErrorCode::State, "backward",
         "{} saved {} in version {}, and it is in version {} now: it was changed in place between "
         "forward and backward; change it after backward(), or give the operation a clone()",
         name(), describe(tensor), version, tensor.version());
  }
  return tensor;
}

namespace {

std::shared_ptr<const void> observed(trace::Observer& observer, const char* name,
                                     const Variable& first, const Tensor& result,
                                     std::initializer_list<Tensor> saved) {
  trace::Operation operation{name, 1, trace::host_values(result), {}};
  if (first.shape().num_dims() > 0) operation.num_rows = first.shape()[0];
  for (const Tensor& tensor : saved) operation.saved.push_back(trace::host_values(tensor));
  return observer.operation(operation);
}

bool needs_node(std::span<const Variable> inputs) {
  return grad_enabled() && std::ranges::any_of(inputs, requires_grad);
}

}  // namespace

Variable record(const char* name, std::initializer_list<Variable> inputs, Tensor result,
                std::initializer_list<Tensor> saved, Node::Backward backward) {
  const std::span<const Variable> all(inputs.begin(), inputs.size());
  if (trace::recording()) [[unlikely]]
    runtime::sample_memory(result.logical_device());
  if (!needs_node(all)) return Variable(std::move(result));
  auto node = std::make_shared<Node>(name, all, 1, result.device(), saved, std::move(backward));
  if (trace::Observer* observer = trace::observer()) {
    node->observed_ = observed(*observer, name, all[0], result, saved);
  }
  return GraphAccess::make_result(std::move(result), std::move(node), 0);
}

std::vector<Variable> record_many(const char* name, std::span<const Variable> inputs,
                                  std::vector<Tensor> results, Device device,
                                  Node::Backward backward) {
  std::vector<Variable> outputs;
  std::shared_ptr<Node> node;
  if (needs_node(inputs)) {
    node = std::make_shared<Node>(name, inputs, results.size(), device,
                                  std::initializer_list<Tensor>{}, std::move(backward));
  }
  for (std::size_t i = 0; i < results.size(); ++i) {
    outputs.push_back(node ? GraphAccess::make_result(std::move(results[i]), node, i)
                           : Variable(std::move(results[i])));
  }
  return outputs;
}

}  // namespace lockstep
