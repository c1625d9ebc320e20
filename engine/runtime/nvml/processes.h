// Processes of this machine, as /proc shows them.
#pragma once

#include <optional>
#include <string>

namespace lockstep::nvml {

// Who a process belongs to and what it runs.
struct ProcessOwner {
  std::string user;     // "alice"; the number where it has no name
  std::string command;  // "python train.py"
};

// Absent when the process ended, or belongs to another PID namespace (outside this container).
std::optional<ProcessOwner> find_owner(int pid);

// The process that started pid; absent as above, and for the first process.
std::optional<int> parent_of(int pid);

// Whether both belong to one job as far as the kernel can tell: the same process, or one descends
// from the other. A launcher and its ranks are relatives; two ranks are not.
bool are_relatives(int a, int b);

}  // namespace lockstep::nvml
