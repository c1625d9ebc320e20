// Whether somebody else used the GPUs while something was measured on them.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "engine/runtime/nvml/library.h"

namespace lockstep::nvml {

// Watches GPUs during one measurement. Take a sample before it, one after it while this process
// still has its context there, and any number between, outside of what is timed: each asks the
// driver once per GPU and gives the GPU nothing to do.
//
// A process that comes and goes between two samples is not seen.
class ContentionProbe {
 public:
  // The GPUs by UUID. None: nothing is watched, and verdict() is false.
  explicit ContentionProbe(std::vector<std::string> uuids);

  void sample();

  // true:   a process other than this one, its ancestors and descendants had a compute context on
  //         one of the GPUs.
  // false:  none had.
  // absent: NVML cannot tell: it is not there, does not list processes, or lists them by numbers of
  //         another PID namespace, so that this process is not among them (a container).
  std::optional<bool> verdict() const;

 private:
  // What was seen on one GPU, over all samples.
  struct Seen {
    std::set<int> pids;
    std::set<int> strangers;   // of them, those that are not of this process's job
    std::size_t num_last = 0;  // processes of the last sample
  };

  std::vector<std::string> uuids_;
  std::unique_ptr<Library> library_;  // only where something is watched
  std::map<std::string, Seen> seen_;
  bool is_blind_ = false;  // a sample failed
};

}  // namespace lockstep::nvml
