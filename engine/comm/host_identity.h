// The identity of a host and of a process, which tells which processes can share memory.
#pragma once

#include <string>

namespace lockstep::comm {

// A line that two processes share exactly if they run under one kernel as the same user and see
// each other: the boot's id, the user, and the network and PID namespaces. So containers and
// network namespaces count as separate hosts. The host name comes first, for messages: "node7
// 5d8c... user 1000 net 4026531840 pid 4026531836".
std::string host_identity();

// The host name in such a line.
std::string host_name_of(const std::string& identity);

// "process 1234 on node7".
std::string name_of_this_process();

}  // namespace lockstep::comm
