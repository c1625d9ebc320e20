// Which cores a rank, or a device, computes on.
//
// The kernel often leaves two of them on one core, for milliseconds or for a whole run, while
// another core has only threads that wait, and a collective waits for its slowest rank. So where
// there are cores enough, each rank of a host is bound to cores of its own: the allowed cores are
// cut into one part per rank, in their order.
#pragma once

#include <cstddef>
#include <span>
#include <thread>
#include <vector>

namespace lockstep::runtime {

// The cores that this process may use (its main thread's affinity mask, not the machine's count),
// rising.
std::vector<int> allowed_cores();
// The same of the calling thread alone.
std::vector<int> cores_of_this_thread();

// Part 1 of 2 of {0, 1, 2, 3} is {2, 3}. Empty when there are fewer cores than parts: then nobody
// is bound.
std::vector<int> part_of_cores(const std::vector<int>& cores, std::size_t part,
                               std::size_t num_parts);

// From now on the calling thread, and each that it starts, runs on these cores only; on an empty
// list it stays as it is. Safe between fork and exec.
void bind_to(const std::vector<int>& cores) noexcept;
// From now on other threads run on the cores that the calling thread may run on.
void bind_as_caller(std::span<std::thread> threads) noexcept;

}  // namespace lockstep::runtime
