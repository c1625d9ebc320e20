// Runs a program that is to be examined: with a time limit, its output passed on and kept.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "engine/launch/process.h"

namespace lockstep::doctor {

struct Examined {
  std::string output;          // on its standard output, the first MiB
  std::string last_error;      // the last line on its standard error
  int exit_code = 0;           // 128 + signal when one ended it
  bool has_timed_out = false;  // it, and all that it had started, was killed
};

// The program records itself in `folder` (LOCKSTEP_AUDIT). Both its streams go to this process's
// standard error, so that standard output has what the doctor says alone.
// Throws Error{Usage} when there is no such program, Error{Io} when it cannot be started.
Examined run_examined(const std::vector<std::string>& command, const std::filesystem::path& folder,
                      double timeout_seconds);

}  // namespace lockstep::doctor
