// Children of a module that are its own members. Each is remembered by its place in the object, in
// bytes, so that a copy finds the members of its own.
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

}  // namespace lockstep::nn
