// Which cores a rank may run on.
//
// The kernel often leaves two ranks on one core for milliseconds while another core is idle, and a
// collective waits for its slowest rank. So where there are cores enough, each rank of a host is
// bound to cores of its own: the allowed cores are cut into one part per rank, in their order.
#pragma once

#include <vector>

namespace lockstep::launch {

// bind_to_cores: to a part of the cores, where there are at least as many as ranks. none: every
// rank may run on all of them.
enum class Binding { none, bind_to_cores };

// What a rank finds in its environment when it has cores to itself: LOCKSTEP_BIND_TO=core.
inline constexpr const char* kBindVariable = "LOCKSTEP_BIND_TO";

// The cores that this process may run on, rising.
std::vector<int> allowed_cores();

// The cores of one of num_workers ranks: rank 1 of 2 on {0, 1, 2, 3} has {2, 3}. Empty when there
// are fewer cores than ranks: then nobody is bound.
std::vector<int> cores_of_worker(const std::vector<int>& allowed, int local_rank, int num_workers);

// From now on this process runs on these cores only; on an empty list it stays as it is. Safe
// between fork and exec.
void bind_to(const std::vector<int>& cores) noexcept;

}  // namespace lockstep::launch
