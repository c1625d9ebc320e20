// A process as the kernel describes it in /proc/PID/stat.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <string>

namespace lockstep::runtime {

struct ProcessStat {
  std::string name;        // the kernel's: 15 characters at most, any of them
  pid_t parent = 0;        // 0: started by the kernel, or from outside of this PID namespace
  std::string start_time;  // in clock ticks since the system's start
};

// Absent when there is no such process here. proc: where the kernel describes processes.
std::optional<ProcessStat> read_process_stat(pid_t process,
                                             const std::filesystem::path& proc = "/proc");

}  // namespace lockstep::runtime
