// Whether this process writes down what it does, for `lockstep doctor` to judge.
//
// On when LOCKSTEP_AUDIT names a folder as the process starts. Every hook of the engine asks here
// first, so that a program that is not examined pays one branch.
#pragma once

#include <atomic>

namespace lockstep::audit {

namespace detail {
extern std::atomic<bool> is_on;
}

inline bool is_on() {
  return detail::is_on.load(std::memory_order_relaxed);
}

}  // namespace lockstep::audit
