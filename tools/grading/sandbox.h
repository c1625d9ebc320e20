// Runs a program that may do anything: with a time limit, with limits on what it may use (prlimit),
// and, where bubblewrap is installed and works, with files, processes and networks of its own.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "engine/launch/process.h"
#include "tools/grading/places.h"

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

struct SandboxLimits {
  std::size_t cpu_seconds = 0;
  std::size_t memory_mib = 0;  // of address space
  std::size_t file_mib = 0;    // of each file that it writes
};

// "limits" and, where it works, "bubblewrap". Throws Error{Io} where a sandboxed program could not
// read what the grader gives it.
std::vector<std::string> find_sandbox(const Places& places);

enum class Folder { read_only, writable };

// The command line that runs `command` under the limits. In bubblewrap it reads the system's
// programs, `readable` and `folder`, and writes nowhere but in a /tmp of its own and, if it is
// writable, in `folder`. Where the grader is root, it runs as the folder's owner.
std::vector<std::string> sandboxed(const std::vector<std::string>& command,
                                   const std::vector<std::string>& readable,
                                   const std::string& folder, Folder access,
                                   const SandboxLimits& limits);

// Where the grader is root, gives the folder to a user that owns nothing else, one for each folder:
// so a submission that starts processes without end reaches its own limit, not its neighbour's.
void give_to_scratch_user(const std::string& folder);

}  // namespace lockstep::tools::grading
