#include "engine/audit/rank.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <mutex>
#include <utility>
#include <vector>

#include "engine/core/thread_context.h"

namespace lockstep::audit {
namespace {

struct Group {
  std::string name;
  int world_size = 1;
};

struct Groups {
  std::mutex mutex;
  std::vector<Group> all{{}};  // by number
  std::uint32_t of_process = 0;
  int rank_of_process = 0;
};

Groups& groups() {
  static auto& instance = *new Groups;  // outlives every thread
  return instance;
}

}  // namespace

std::string new_group_name() {
  static int count = 0;
  const std::lock_guard lock(groups().mutex);
  const auto now = std::chrono::steady_clock::now().time_since_epoch().count();
  return fmt::format("{}.{}.{}", ::getpid(), now, ++count);
}

std::uint32_t register_group(std::string name, int world_size) {
  const std::lock_guard lock(groups().mutex);
  groups().all.push_back({std::move(name), world_size});
  return static_cast<std::uint32_t>(groups().all.size() - 1);
}

std::string group_name(std::uint32_t group) {
  const std::lock_guard lock(groups().mutex);
  return groups().all.at(group).name;
}

void set_rank_of_process(std::uint32_t group, int rank) {
  const std::lock_guard lock(groups().mutex);
  groups().of_process = group;
  groups().rank_of_process = rank;
}

std::uint32_t current_group() {
  const std::uint32_t group = thread_context().group;
  if (group != 0) return group;
  const std::lock_guard lock(groups().mutex);
  return groups().of_process;
}

Rank current_rank() {
  const ThreadContext& context = thread_context();
  const std::lock_guard lock(groups().mutex);
  const bool is_thread = context.group != 0;
  const std::uint32_t number = is_thread ? context.group : groups().of_process;
  if (number == 0) return {};
  const Group& group = groups().all.at(number);
  return {group.name, is_thread ? context.rank : groups().rank_of_process, group.world_size};
}

}  // namespace lockstep::audit
