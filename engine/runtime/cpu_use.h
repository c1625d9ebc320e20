// CPU time that processes use during a measurement, and the files of a process in /proc.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

namespace lockstep::runtime {

// The text of the file /proc/PID/NAME; empty if the process no longer exists, or the file may not
// be read. proc: the kernel's folder of processes.
std::string read_process_file(pid_t process, const char* name,
                              const std::filesystem::path& proc = "/proc");

// The process that started it (0: the kernel, or a process outside this PID namespace); absent if
// it no longer exists.
std::optional<pid_t> parent_of(pid_t process, const std::filesystem::path& proc = "/proc");

// CPU time of this process since it began.
double own_cpu_seconds();

// CPU time on the cores of this process since the first sample, by who used it.
struct CoreUse {
  double wall_seconds = 0;
  double own_seconds = 0;     // CPU time of this process, and of ranks that belong to it
  double total_seconds = 0;   // CPU time of every process on the cores that this one may use
  double stolen_seconds = 0;  // the cores were another virtual machine's
  // Time for which threads of this process were ready but had no core; absent if the kernel does
  // not tell.
  std::optional<double> waiting_seconds;
};

// True if others took cores that this process could have used: more than 5 % of those cores' time
// (and more than the kernel's clock may be wrong by), while threads of this process had to wait for
// a core. Its own threads' use of each other's time does not count. Absent if the figures cannot be
// a kernel's, with others using less than nothing.
std::optional<bool> is_disturbed(const CoreUse& use, std::size_t usable_cores);

// Takes samples. Each costs some tens of microseconds and reads a file per thread, so take none
// while something is timed.
class CoreProbe {
 public:
  void sample();

  // The use between the first and the last sample; nothing before the second.
  CoreUse use() const;

 private:
  struct Sample {
    CoreUse use;                            // counted from the clocks' beginnings
    std::map<int, double> waiting_seconds;  // of each thread, by its number
  };
  std::optional<Sample> first_;
  Sample last_;
};

}  // namespace lockstep::runtime
