#include "engine/parallel/data_parallel/lost_members.h"

#include "engine/audit/models.h"

namespace lockstep::parallel {
namespace {

const std::byte* begin_of(const nn::Module& module) {
  return static_cast<const std::byte*>(dynamic_cast<const void*>(&module));
}

}  // namespace

LostMembers::LostMembers(const nn::Module& replica, Device device) : device_(device) {
  keep(replica);
}

void LostMembers::keep(const nn::Module& module) {
  const std::byte* begin = begin_of(module);
  kept_.push_back({&module, {begin, begin + module.object_bytes()}});
  for (const auto& [name, child] : module.children()) keep(*child);
}

void LostMembers::note() const {
  for (const auto& [module, bytes] : kept_) {
    std::size_t num_changed = 0;
    for (std::size_t i = 0; i < bytes.size(); ++i) num_changed += bytes[i] != begin_of(*module)[i];
    if (num_changed == 0) continue;
    audit::note_lost_member(module->type_name(), to_string(device_), num_changed);
  }
}

}  // namespace lockstep::parallel
