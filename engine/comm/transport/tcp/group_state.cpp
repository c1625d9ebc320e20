#include "engine/comm/transport/tcp/group_state.h"

#include <fmt/format.h>

namespace lockstep::comm {

GroupState::GroupState(int world_size, std::vector<int> members)
    : members_(std::move(members)), calls_(static_cast<std::size_t>(world_size)) {}

void GroupState::announced(int rank, const CallHeader& call) {
  const std::lock_guard lock(mutex_);
  Calls& calls = calls_[static_cast<std::size_t>(rank)];
  calls.latest[call.sequence % 2] = call;
  calls.number[call.sequence % 2] = call.sequence + 1;
}

std::optional<CallHeader> GroupState::call_of(int rank, std::uint64_t sequence) const {
  const std::lock_guard lock(mutex_);
  const Calls& calls = calls_[static_cast<std::size_t>(rank)];
  if (calls.number[sequence % 2] <= sequence) return std::nullopt;
  return calls.latest[sequence % 2];
}

std::string GroupState::describe_missing(std::uint64_t sequence) const {
  const std::lock_guard lock(mutex_);
  std::string text;
  for (const int rank : members_) {
    const Calls& calls = calls_[static_cast<std::size_t>(rank)];
    const std::size_t last = calls.number[0] < calls.number[1] ? 1 : 0;
    if (calls.number[last] > sequence) continue;
    const std::string call = calls.number[last] == 0 ? "nothing" : to_string(calls.latest[last]);
    text += fmt::format("{}rank {} is missing (its last call: {})", text.empty() ? "" : ", ", rank,
                        call);
  }
  return text;
}

bool GroupState::fail(const Error& error) {
  const std::lock_guard lock(mutex_);
  if (failure_) return false;
  failure_.emplace(error);
  has_failed_.store(true, std::memory_order_release);
  return true;
}

void GroupState::throw_if_failed() const {
  if (has_failed()) throw failure();
}

Error GroupState::failure() const {
  const std::lock_guard lock(mutex_);
  return *failure_;
}

}  // namespace lockstep::comm
