#include "engine/autograd/variable.h"

#include "engine/autograd/backward_pass.h"
#include "engine/autograd/node.h"
#include "engine/autograd/variable_impl.h"
#include "engine/core/error.h"

namespace lockstep {

Variable::Variable(Tensor value, RequiresGrad requires_grad)
    : impl_(std::make_shared<VariableImpl>()) {
  require(value.defined(), ErrorCode::State, "variable", "needs a defined tensor");
  impl_->value = std::move(value);
  if (requires_grad == RequiresGrad::yes) set_requires_grad(requires_grad);
}

const Tensor& Variable::value() const {
  require(defined(), ErrorCode::State, "variable", "is undefined: it was never given a tensor");
  return impl_->value;
}

void Variable::set_value(Tensor value) {
  require(is_leaf(), ErrorCode::State, "set_value",
          "only a leaf's tensor can be replaced; this is the result of {}",
          is_leaf() ? "" : impl_->node->name());
  impl_->value = std::move(value);
  impl_->grad_slot = {};
}

bool Variable::requires_grad() const {
  return defined() && impl_->requires_grad;
}

void Variable::set_requires_grad(RequiresGrad requires_grad) {
  require(is_leaf(), ErrorCode::State, "set_requires_grad", "only a leaf can change it");
  require(requires_grad == RequiresGrad::no || is_floating_point(dtype()), ErrorCode::DType,
          "set_requires_grad", "gradients need a floating dtype, found {}", to_string(dtype()));
  impl_->requires_grad = requires_grad == RequiresGrad::yes;
}

bool Variable::is_leaf() const {
  return !impl_->node;
}
const std::shared_ptr<Node>& Variable::node() const {
  return impl_->node;
}
std::size_t Variable::output_index() const {
  return impl_->output_index;
}

const Tensor& Variable::grad() const {
  return impl_->grad;
}

void Variable::set_grad(Tensor grad) {
  if (grad.defined()) require_same_shape("set_grad", value(), grad);
  impl_->grad = std::move(grad);
}

void Variable::clear_grad() {
  impl_->grad = {};
}

void Variable::set_grad_slot(Tensor slot) {
  if (slot.defined()) {
    require_same_shape("set_grad_slot", value(), slot);
    require_same_dtype("set_grad_slot", {&value(), &slot});
    require_same_device("set_grad_slot", {&value(), &slot});
  }
  impl_->grad_slot = std::move(slot);
}

const Tensor& Variable::grad_slot() const {
  return impl_->grad_slot;
}

std::uint64_t Variable::on_grad_ready(GradHook hook) {
  require(is_leaf(), ErrorCode::State, "on_grad_ready", "hooks belong to leaves");
  impl_->hooks.emplace_back(impl_->next_hook_id, std::move(hook));
  return impl_->next_hook_id++;
}

void Variable::remove_grad_hook(std::uint64_t id) {
  std::erase_if(impl_->hooks, [id](const auto& entry) { return entry.first == id; });
}

void Variable::backward(Tensor grad, Graph graph) const {
  BackwardPass(*this, std::move(grad), graph).run();
}

Variable Variable::detach() const {
  return Variable(value());
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
  if (impl.grad.defined()) {
    impl.grad.backend().axpy(impl.grad.stream(), 1.0, gradient.view(), impl.grad.view());
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
  // A hook may remove itself; the list it runs from must not move under it.
  const auto hooks = GraphAccess::impl(leaf).hooks;
  for (const auto& [id, hook] : hooks) hook(leaf);
}

}  // namespace lockstep
