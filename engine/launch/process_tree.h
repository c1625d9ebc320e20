// All processes that descend from this one, also those that have left its session: /proc knows.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <vector>

namespace lockstep::launch {

// From now on, a descendant whose parent dies becomes a child of this process instead of init's
// (PR_SET_CHILD_SUBREAPER), so none gets out of sight. Returns the setting before.
bool adopt_orphans(bool adopt);

// Children, their children, and so on; without the trees of those in `except`.
std::vector<pid_t> find_descendants(const std::vector<pid_t>& except = {});

// Sends SIGKILL to all descendants until none is left, and reaps them.
// REQUIRES: adopt_orphans(true). Returns how many are left after five seconds: 0, but for processes
// of another user, or those that the kernel holds.
std::size_t kill_descendants(const std::vector<pid_t>& except = {});

}  // namespace lockstep::launch
