// Copies of modules, and children of a module that are its own members: each is remembered by its
// place in the object, in bytes, so that a copy finds the members of its own.
#include <algorithm>
#include <functional>

#include "engine/core/error.h"
#include "engine/nn/module.h"

namespace lockstep::nn {

std::size_t Module::register_child(std::string name, Module& member) {
  const auto* begin = static_cast<const std::byte*>(dynamic_cast<const void*>(this));
  const auto* place = reinterpret_cast<const std::byte*>(&member);
  require(!std::less<>()(place, begin) && std::less<>()(place, begin + object_bytes()),
          ErrorCode::Usage, "module",
          "'{}' is registered by reference, but is not a member of this {}", name, type_name());
  const std::ptrdiff_t offset = place - reinterpret_cast<const std::byte*>(this);
  members_.push_back({register_child(std::move(name), member_at(offset)), offset});
  return members_.back().child;
}

// Points at the member, without ownership.
std::shared_ptr<Module> Module::member_at(std::ptrdiff_t offset) {
  auto* member = reinterpret_cast<Module*>(reinterpret_cast<std::byte*>(this) + offset);
  return {std::shared_ptr<Module>(), member};
}

Module::Module(const Module& other)
    : parameters_(other.parameters_),
      paddings_(other.paddings_),
      buffers_(other.buffers_),
      children_(other.children_),
      members_(other.members_),
      mode_(other.mode_) {
  for (const Member& member : members_) children_[member.child].second = member_at(member.offset);
}

void Module::copy_children() {
  for (std::size_t i = 0; i < children_.size(); ++i) {
    Module& child = *children_[i].second;
    const auto is_this = [i](const Member& member) { return member.child == i; };
    if (std::ranges::any_of(members_, is_this)) {
      child.copy_children();  // it was copied with this module
    } else {
      children_[i].second = child.shallow_copy();
    }
  }
}

namespace {

// copy: makes the values of the copy's parameters and buffers.
template <typename Copy>
std::shared_ptr<Module> copy_with(const Module& module, const Copy& copy) {
  std::vector<Variable> parameters;
  for (const Variable& original : module.parameters()) {
    parameters.emplace_back(copy(original.value()),
                            original.requires_grad() ? RequiresGrad::yes : RequiresGrad::no);
  }
  std::vector<Tensor> buffers;
  for (const Tensor& original : module.buffers()) buffers.push_back(copy(original));
  std::shared_ptr<Module> result = module.shallow_copy();
  result->set_parameters(parameters);
  result->set_buffers(buffers);
  return result;
}

}  // namespace

std::shared_ptr<Module> Module::clone() const {
  return copy_with(*this, [](const Tensor& tensor) { return tensor.clone(); });
}

std::shared_ptr<Module> Module::copy_on(Device device) const {
  return copy_with(*this, [device](const Tensor& tensor) { return tensor.to(device); });
}

void Module::require_type(const std::type_info& type) const {
  require(typeid(*this) == type, ErrorCode::State, "module",
          "a copy of this {0} would be a {1}; derive it from ModuleOf<{0}, {1}>",
          class_name(typeid(*this)), class_name(type));
}

}  // namespace lockstep::nn
