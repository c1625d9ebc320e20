// CPU cores: which ones a rank computes on.
#pragma once

#include <cstddef>
#include <span>
#include <thread>
#include <vector>

namespace lockstep::runtime {

// The kernel often leaves two ranks on one core, for milliseconds or for a whole run, while another
// core has only waiting threads, and a collective waits for its slowest rank. So if there are
// enough cores, each rank of a host is bound to cores of its own: the allowed cores are cut into
// one part per rank, in their order.

// The cores that this process may use (its main thread's affinity mask, not the machine's count),
// in rising order.
std::vector<int> allowed_cores();

// Part 1 of 2 of {0, 1, 2, 3} is {2, 3}. Empty if there are fewer cores than parts: then no rank is
// bound.
std::vector<int> part_of_cores(const std::vector<int>& cores, std::size_t part,
                               std::size_t num_parts);

// Binds the calling thread, and each thread that it starts from now on, to these cores; an empty
// list changes nothing. Safe between fork and exec.
void bind_to(const std::vector<int>& cores) noexcept;
// Binds other threads to the cores that the calling thread may run on.
void bind_as_caller(std::span<std::thread> threads) noexcept;

}  // namespace lockstep::runtime
