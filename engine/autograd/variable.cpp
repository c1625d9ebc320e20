#include "engine/autograd/variable.h"

#include "engine/autograd/backward.h"
#include "engine/autograd/node.h"
#include "engine/core/error.h"
#include "kernels/calls.h"

namespace lockstep {
namespace {

void require_differentiable(std::string_view operation, bool requires_grad, DType dtype) {
  require(!requires_grad || is_floating_point(dtype), ErrorCode::DType, operation,
          "gradients need a floating dtype, found {}", to_string(dtype));
}

// An undefined tensor is always allowed.
void require_like_value(std::string_view operation, const VariableImpl& impl,
                        const Tensor& tensor) {
  if (!tensor.defined()) return;
  require_same_shape(operation, impl.value, tensor);
  require_same_dtype(operation, {&impl.value, &tensor});
  require_same_device(operation, {&impl.value, &tensor});
}

// A leaf's tensor may have been replaced since the forward pass.
void require_fits(const VariableImpl& leaf, const Tensor& gradient) {
  const Tensor& value = leaf.value;
  if (gradient.shape() == value.shape() && gradient.dtype() == value.dtype() &&
      &gradient.logical_device() == &value.logical_device()) {
    return;
  }
  fail(ErrorCode::State, "backward",
       "the gradient of a leaf is {}, but the leaf is {} now: a backward function returned what "
       "does not fit, or the leaf's tensor was replaced after the forward pass",
       describe(gradient), describe(value));
}

}  // namespace

Variable::Variable(Tensor value, RequiresGrad requires_grad)
    : impl_(std::make_shared<VariableImpl>()) {
  require(value.defined(), ErrorCode::State, "variable", "needs a defined tensor");
  impl_->value = std::move(value);
  if (requires_grad == RequiresGrad::yes) set_requires_grad(requires_grad);
}

void Variable::fail_undefined() {
  fail(ErrorCode::State, "variable", "is undefined: it was never given a tensor");
}

void Variable::set_value(Tensor value) {
  VariableImpl& impl = checked();
  require(!impl.node, ErrorCode::State, "set_value",
          "only a leaf's tensor can be replaced; this is the result of {}",
          impl.node ? impl.node->name() : "");
  require(value.defined(), ErrorCode::State, "set_value", "needs a defined tensor");
  require_differentiable("set_value", impl.requires_grad, value.dtype());
  if (impl.grad.defined()) require_same_shape("set_value", value, impl.grad);
  impl.value = std::move(value);
  impl.grad_slot = {};
}

const Variable& Variable::add_(const Tensor& other, double factor) const {
  require(is_leaf(), ErrorCode::State, "add_",
          "only a leaf is changed in place; this is the result of {}",
          is_leaf() ? "" : node()->name());
  value().add_(other, factor);
  return *this;
}

void Variable::set_requires_grad(RequiresGrad requires_grad) {
  require(is_leaf(), ErrorCode::State, "set_requires_grad", "only a leaf can change it");
  const bool is_wanted = requires_grad == RequiresGrad::yes;
  require_differentiable("set_requires_grad", is_wanted, dtype());
  impl_->requires_grad = is_wanted;
}

void Variable::set_grad(Tensor grad) {
  VariableImpl& impl = checked();
  require_like_value("set_grad", impl, grad);
  impl.grad = std::move(grad);
}

void Variable::set_grad_slot(Tensor slot) {
  VariableImpl& impl = checked();
  require_like_value("set_grad_slot", impl, slot);
  impl.grad_slot = std::move(slot);
}

std::uint64_t Variable::on_grad_ready(GradHook hook, HookOrder order) {
  require(is_leaf(), ErrorCode::State, "on_grad_ready", "hooks belong to leaves");
  require(hook != nullptr, ErrorCode::Usage, "on_grad_ready", "there is no function to call");
  auto& hooks = impl_->hooks;
  hooks.emplace(order == HookOrder::first ? hooks.begin() : hooks.end(), impl_->next_hook_id,
                std::move(hook));
  return impl_->next_hook_id++;
}

void Variable::remove_grad_hook(std::uint64_t id) {
  std::erase_if(checked().hooks, [id](const auto& entry) { return entry.first == id; });
}

void Variable::backward(Tensor grad, Graph graph) const {
  run_backward(*this, std::move(grad), graph);
}

Variable GraphAccess::make_result(Tensor value, std::shared_ptr<Node> node,
                                  std::size_t output_index) {
  Variable result(std::move(value));
  result.impl_->requires_grad = true;
  result.impl_->node = std::move(node);
  result.impl_->output_index = output_index;
  return result;
}

void add_leaf_gradient(const Variable& leaf, Tensor gradient) {
  VariableImpl& impl = GraphAccess::impl(leaf);
  require_fits(impl, gradient);
  if (impl.grad.defined()) {
    impl.grad.bump_version();
    impl.grad.backend().axpy(impl.grad.stream(), {1.0, gradient.view(), impl.grad.view()});
  } else if (impl.grad_slot.defined()) {
    if (!gradient.shares_memory_with(impl.grad_slot)) impl.grad_slot.copy_from(gradient);
    impl.grad = impl.grad_slot;
  } else if (gradient.storage().use_count() == 1) {
    impl.grad = std::move(gradient);
  } else {
    impl.grad = gradient.clone();
  }
  impl.slot_is_taken = false;
}

void call_leaf_hooks(const Variable& leaf) {
  // A hook may remove itself, so the list that is running must not move.
  const auto hooks = GraphAccess::impl(leaf).hooks;
  for (const auto& [id, hook] : hooks) hook(leaf);
}

}  // namespace lockstep
