// What tells whether two processes can share memory.
#pragma once

#include <string>

namespace lockstep::comm {

// A line that two processes have in common exactly when they run under one kernel as the same user
// and see each other: the boot's id, the user, and the network and PID namespaces. Containers and
// network namespaces so count as hosts of their own. The host name comes first, for messages:
// "node7 5d8c... user 1000 net 4026531840 pid 4026531836".
std::string host_identity();

// The host name in such a line.
std::string host_name_of(const std::string& identity);

}  // namespace lockstep::comm
