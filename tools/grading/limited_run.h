// A program that may do anything: started, watched, and ended with all that it started.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "engine/launch/process.h"

namespace lockstep::tools::grading {

struct RunLimits {
  double seconds = 10;                             // of wall time
  std::size_t out_bytes = std::size_t{1} << 20;    // on standard output
  std::size_t error_bytes = std::size_t{1} << 20;  // on standard error
};

struct RunEnd {
  enum class How { exited, signalled, out_of_time, too_much_output };
  How how = How::exited;
  int code = 0;  // the exit code, or the signal
  std::string out;
  std::string err;
};

// Runs the command, whose first word is a path, in a process group of its own, and returns when
// none of that group is left. Throws Error{Io} when it does not start.
RunEnd run_limited(const std::vector<std::string>& command, const launch::Environment& environment,
                   const RunLimits& limits);

// "exited with code 3", "crashed: Segmentation fault", "was stopped: ...".
std::string describe(const RunEnd& end, const RunLimits& limits);

}  // namespace lockstep::tools::grading
