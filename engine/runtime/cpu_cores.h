// CPU cores: which ones a rank computes on, and who else used them during a measurement.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

namespace lockstep::runtime {

// The kernel often leaves two of them on one core, for milliseconds or for a whole run, while
// another core has only threads that wait, and a collective waits for its slowest rank. So where
// there are cores enough, each rank of a host is bound to cores of its own: the allowed cores are
// cut into one part per rank, in their order.

// The cores that this process may use (its main thread's affinity mask, not the machine's count),
// rising.
std::vector<int> allowed_cores();
// The same of the calling thread alone.
std::vector<int> cores_of_this_thread();

// Part 1 of 2 of {0, 1, 2, 3} is {2, 3}. Empty when there are fewer cores than parts: then no rank
// is bound.
std::vector<int> part_of_cores(const std::vector<int>& cores, std::size_t part,
                               std::size_t num_parts);

// From now on the calling thread, and each that it starts, runs on these cores only; on an empty
// list it stays as it is. Safe between fork and exec.
void bind_to(const std::vector<int>& cores) noexcept;
// From now on other threads run on the cores that the calling thread may run on.
void bind_as_caller(std::span<std::thread> threads) noexcept;

// The text of the file /proc/PID/NAME; empty when there is no such process any more, or it may not
// be read. proc: where the kernel describes processes.
std::string read_process_file(pid_t process, const char* name,
                              const std::filesystem::path& proc = "/proc");

// Which process started it (0: the kernel, or one outside of this PID namespace); absent when there
// is no such process any more.
std::optional<pid_t> parent_of(pid_t process, const std::filesystem::path& proc = "/proc");

// CPU time of this process since it began.
double own_cpu_seconds();

// CPU time on the cores of this process since the first sample, by who used it.
struct CoreUse {
  double wall_seconds = 0;
  double own_seconds = 0;     // CPU time of this process, and of ranks that belong to it
  double total_seconds = 0;   // CPU time of every process on the cores that this one may use
  double stolen_seconds = 0;  // the cores were another virtual machine's
  // Threads of this process were ready and had no core; absent where the kernel does not tell.
  std::optional<double> waiting_seconds;
};

// True if others took cores that this process could have used: more than 5 % of those cores' time
// (and more than the kernel's clock may be wrong by), while threads of this process had to wait for
// a core. What its own threads take from each other does not count. Absent when the figures are not
// a kernel's: others cannot have used less than nothing.
std::optional<bool> is_disturbed(const CoreUse& use, std::size_t usable_cores);

// Takes samples, each of which costs some tens of microseconds and a file per thread; take them
// outside of what is timed.
class CoreProbe {
 public:
  void sample();

  // Between the first and the last sample; nothing before the second.
  CoreUse use() const;

 private:
  struct Sample {
    double wall_seconds = 0;
    double own_seconds = 0;
    double total_seconds = 0;
    double stolen_seconds = 0;
    std::map<int, double> waiting_seconds;  // of each thread, by its number
  };
  std::optional<Sample> first_;
  Sample last_;
};

}  // namespace lockstep::runtime
