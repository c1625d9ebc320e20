// What tells whether two processes can share memory.
#pragma once

#include <string>

namespace lockstep::comm {

// A line that two processes have in common exactly when they run under one kernel as the same user
// and see each other: the boot's id, the user, and the network and PID namespaces. Containers and
// network namespaces so count as hosts of their own. The host name comes first, for messages:
// "node7 5d8c... user 1000 net 4026531840 pid 4026531836".
std::string host_identity();

// Of this kernel since it was started: the part of the line that processes in any container of one
// machine share, as they share its monotonic clock. "unknown" where the system does not say.
std::string boot_id();

// The host name in such a line.
std::string host_name_of(const std::string& identity);

}  // namespace lockstep::comm
