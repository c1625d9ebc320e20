// What one rank knows of its group: who called what last, and whether the group has failed. Any
// thread may use it.
#pragma once

#include <string>
#include <vector>

#include "engine/comm/comm_errors.h"
#include "engine/comm/announcements.h"

namespace lockstep::comm {

class GroupState {
 public:
  // members: the ranks that announce their calls to this one, itself among them.
  GroupState(int world_size, std::vector<int> members);

  // One thread at a time announces calls of a rank.
  Announcements& announced(int rank) { return announced_[static_cast<std::size_t>(rank)]; }
  // See Transport::describe_missing.
  std::string describe_missing(std::uint64_t sequence) const;

  FirstFailure& failure() { return failure_; }
  const FirstFailure& failure() const { return failure_; }

 private:
  std::vector<int> members_;
  std::vector<Announcements> announced_;  // by rank
  FirstFailure failure_;
};

}  // namespace lockstep::comm
