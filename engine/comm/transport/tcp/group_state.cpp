#include "engine/comm/transport/tcp/group_state.h"

#include "engine/comm/comm_errors.h"

namespace lockstep::comm {

GroupState::GroupState(int world_size, std::vector<int> members)
    : members_(std::move(members)), announced_(static_cast<std::size_t>(world_size)) {}

std::string GroupState::describe_missing(std::uint64_t sequence) const {
  std::string text;
  for (const int rank : members_) {
    const Announcements& announced = announced_[static_cast<std::size_t>(rank)];
    if (!announced.has_reached(sequence)) add_to_list(text, missing_rank(rank, announced.last()));
  }
  return text;
}

}  // namespace lockstep::comm
