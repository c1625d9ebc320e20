// Whether a row of the table was measured undisturbed.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/runtime/cpu_cores.h"
#include "tools/nvml/nvml.h"
#include "tools/report/run_file.h"

namespace lockstep::tools {

// Watches what a row is measured on: the GPUs behind its devices, or the cores of this process.
// Take a sample before, one after each epoch and none while something is timed.
class ContentionProbe {
 public:
  // No device: watches nothing.
  explicit ContentionProbe(const std::vector<Device>& devices);

  void sample();

  // Whether another process used them too, and so made times longer; absent where nobody can tell.
  // num_threads: of all devices of the row. cpu_seconds_of_peers: of ranks of the same job that are
  // processes on this host.
  std::optional<bool> verdict(std::size_t num_threads, double cpu_seconds_of_peers = 0) const;

 private:
  nvml::ContentionProbe gpus_;
  std::optional<runtime::CoreProbe> cores_;
};

// Of an acted row: the share of a step from which on these cores could not follow.
inline constexpr double kNotablePutOff = 0.02;

// What follows the row's mode in the table: "*" contended, "?" where nobody can tell, or nothing.
std::string contention_mark(const RunRow& row);

// What the marks mean, a note each; empty without one.
std::vector<std::string> contention_notes(const std::vector<RunRow>& rows);

}  // namespace lockstep::tools
