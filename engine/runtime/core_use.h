// Who used the cores of this process while something was measured on them.
#pragma once

#include <cstddef>
#include <map>
#include <optional>

namespace lockstep::runtime {

// Since the first sample.
struct CoreUse {
  double wall_seconds = 0;
  double own_seconds = 0;     // CPU time of this process, and of ranks that belong to it
  double total_seconds = 0;   // CPU time of every process on the cores that this one may use
  double stolen_seconds = 0;  // the cores were another virtual machine's
  // Threads of this process were ready and had no core; absent where the kernel does not tell.
  std::optional<double> waiting_seconds;
};

// Whether others took cores that this process could have used: more than 5 % of those cores' time
// (and more than the kernel's clock, which counts in hundredths of a second, may be wrong by),
// while threads of this process had to wait for a core. What its own threads take from each other
// is not meant. Absent when the figures are not a kernel's: others cannot have used less than
// nothing.
std::optional<bool> is_disturbed(const CoreUse& use, std::size_t usable_cores);

// What this process has used since it began.
struct OwnUse {
  double cpu_seconds = 0;
  std::map<int, double> waiting_seconds;  // of each thread that there is now, by its number
};
OwnUse own_use();

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
    double total_seconds = 0;
    double stolen_seconds = 0;
    OwnUse own;
  };
  std::optional<Sample> first_;
  Sample last_;
};

}  // namespace lockstep::runtime
