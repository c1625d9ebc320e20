// The cores that the calling thread may run on.
#pragma once

#include <sched.h>

#include <vector>

namespace lockstep::testing {

inline std::vector<int> cores_of_this_thread() {
  cpu_set_t set;
  CPU_ZERO(&set);
  sched_getaffinity(0, sizeof set, &set);
  std::vector<int> cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  }
  return cores;
}

}  // namespace lockstep::testing
