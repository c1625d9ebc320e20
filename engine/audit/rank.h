// Whose work the calling thread does: which rank of which group.
//
// A group of ranks has a number in each process and a name that all its processes share. Whoever
// makes a group registers it; ThreadContext::group says which one a line of work belongs to.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep::audit {

struct Rank {
  std::string group;  // empty: no group, so one rank alone
  int rank = 0;
  int world_size = 1;
};

// A name that no other group has, of this process or another of this machine.
std::string new_group_name();
// Returns the group's number, 1 or more. Any thread.
std::uint32_t register_group(std::string name, int world_size);
std::string group_name(std::uint32_t group);  // empty for 0

// What lines of work do that belong to no group of threads: those of a rank that is a process.
void set_rank_of_process(std::uint32_t group, int rank);

Rank current_rank();
// The calling thread's group; of a rank that is a process that of its process.
std::uint32_t current_group();

}  // namespace lockstep::audit
