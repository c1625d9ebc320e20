#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <numeric>
#include <thread>

#include "engine/runtime/threads.h"

namespace lockstep::runtime {

std::vector<int> allowed_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cores;
  if (::sched_getaffinity(::getpid(), sizeof set, &set) != 0) {  // more cores than a set holds
    cores.resize(std::thread::hardware_concurrency());
    std::iota(cores.begin(), cores.end(), 0);
    return cores;
  }
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  }
  return cores;
}

std::vector<int> part_of_cores(const std::vector<int>& cores, std::size_t part,
                               std::size_t num_parts) {
  if (cores.size() < num_parts) return {};
  const auto first = static_cast<std::ptrdiff_t>(cores.size() * part / num_parts);
  const auto end = static_cast<std::ptrdiff_t>(cores.size() * (part + 1) / num_parts);
  return {cores.begin() + first, cores.begin() + end};
}

void bind_to(const std::vector<int>& cores) noexcept {
  if (cores.empty()) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int core : cores) CPU_SET(core, &set);
  ::sched_setaffinity(0, sizeof set, &set);
}

std::size_t num_cores() {
  return std::max<std::size_t>(1, allowed_cores().size());
}

}  // namespace lockstep::runtime
