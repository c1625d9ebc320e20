#include "engine/launch/core_binding.h"

#include <sched.h>

namespace lockstep::launch {

std::vector<int> allowed_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  ::sched_getaffinity(0, sizeof set, &set);
  std::vector<int> cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  }
  return cores;
}

std::vector<int> cores_of_worker(const std::vector<int>& allowed, int local_rank, int num_workers) {
  const auto num_cores = static_cast<std::ptrdiff_t>(allowed.size());
  if (num_cores < num_workers) return {};
  const std::ptrdiff_t first = num_cores * local_rank / num_workers;
  const std::ptrdiff_t end = num_cores * (local_rank + 1) / num_workers;
  return {allowed.begin() + first, allowed.begin() + end};
}

void bind_to(const std::vector<int>& cores) noexcept {
  if (cores.empty()) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int core : cores) CPU_SET(core, &set);
  ::sched_setaffinity(0, sizeof set, &set);
}

}  // namespace lockstep::launch
