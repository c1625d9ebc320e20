// A process as the kernel describes it in /proc/PID, as long as there is one: any other process may
// end while it is looked at.
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

// What the file of that name says; empty when there is no such process any more, or it may not be
// read. proc: where the kernel describes processes.
std::string read_process_file(pid_t process, const char* name,
                              const std::filesystem::path& proc = "/proc");

// Of the file "stat"; absent when there is no such process.
std::optional<ProcessStat> read_process_stat(pid_t process,
                                             const std::filesystem::path& proc = "/proc");

}  // namespace lockstep::runtime
