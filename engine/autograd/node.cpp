#include "engine/autograd/node.h"

#include <atomic>

#include "engine/autograd/variable.h"
#include "engine/core/error.h"

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

void Node::connect(std::span<const Variable> inputs, std::size_t num_outputs, Device device) {
  static std::atomic<std::uint64_t> next_sequence{1};
  edges_.reserve(inputs.size());
  for (const Variable& input : inputs) {
    edges_.push_back(requires_grad(input) ? edge_to(input) : Edge{});
  }
  num_outputs_ = num_outputs;
  device_ = device;
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

void Node::fail_changed(const SavedTensor& saved) const {
  fail(ErrorCode::State, "backward",
       "{} saved {} in version {}, and it is in version {} now: it was changed in place between "
       "forward and backward; change it after backward(), or give the operation a clone()",
       name(), describe(saved.unchecked()), saved.version(), saved.unchecked().version());
}

bool needs_node(std::span<const Variable> inputs) {
  if (!grad_enabled()) return false;
  for (const Variable& input : inputs) {
    if (requires_grad(input)) return true;
  }
  return false;
}

}  // namespace lockstep
