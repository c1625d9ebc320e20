// Finds out if other processes disturbed the measurement of a row.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/runtime/cpu_use.h"
#include "tools/devices/nvidia_smi.h"
#include "tools/record/run_file.h"

namespace lockstep::tools {

// Watches the hardware of a row: the GPUs behind its devices, or the cores of this process. Take a
// sample before the run and after each epoch, but not while something is timed.
class ContentionProbe {
 public:
  // Without devices it watches nothing.
  explicit ContentionProbe(const std::vector<Device>& devices);

  void sample();

  // True if another process used that hardware and so lengthened the times; absent if unknown.
  // num_threads: of all the row's devices together. cpu_seconds_of_peers: the CPU time of the job's
  // other ranks that are processes on this host.
  std::optional<bool> verdict(std::size_t num_threads, double cpu_seconds_of_peers = 0) const;

 private:
  GpuContentionProbe gpus_;
  std::optional<runtime::CoreProbe> cores_;
};

// In an acted row, a larger share of delayed time means that these cores could not keep up.
inline constexpr double kNotablePutOff = 0.02;

// The mark after a row's mode in the table: "*" contended, "?" unknown, or nothing.
std::string contention_mark(const RunRow& row);

// One note for each mark in the table that explains it.
std::vector<std::string> contention_notes(const std::vector<RunRow>& rows);

}  // namespace lockstep::tools
