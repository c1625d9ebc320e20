// Runs other programs as children whose output is kept, and this program as the ranks of a job.
#pragma once

#include <cstdio>
#include <limits>
#include <string>
#include <vector>

#include "engine/launch/process.h"

namespace lockstep::tools {

// The path of this program. "/proc/self/exe" will not do: a launcher would take it for itself.
std::string this_program();

// The limits of a child. Output beyond them ends it, or only the newest is kept.
struct ChildLimits {
  double seconds = std::numeric_limits<double>::infinity();
  std::size_t bytes = std::size_t{1} << 20;  // each stream's
  enum class BeyondBytes { end, forget } beyond_bytes = BeyondBytes::end;
  std::FILE* echo = nullptr;  // where its output is shown meanwhile
};

struct ChildEnd {
  enum class How { exited, signalled, out_of_time, too_much_output };
  How how = How::exited;
  int code = 0;  // the exit code, or 128 + the signal
  std::string out;
  std::string err;
};

// Runs the command, whose first word is a path, until it has ended or is beyond a limit, or a
// signal has come that is watched for (interruption.h): then this throws Interrupted. In any case
// its whole process group is killed. Throws Error{Io} if it does not start.
ChildEnd run_child(const std::vector<std::string>& command, const launch::Environment& environment,
                   const ChildLimits& limits = {});

// Starts num_ranks processes of this program on this machine with these arguments (argv as this
// program got it), as `lockstep run --standalone --nproc-per-node N` does, with the ranks' output
// unchanged. Returns the exit code for this program. REQUIRES: this process has no other thread.
// Throws the errors of launch::launch_ranks.
int start_ranks(const std::vector<std::string>& arguments, int num_ranks);

// Waits for a child and returns its exit code, or 128 + the signal that ended it.
int reap(pid_t child);

// The last line that is not empty.
std::string last_line(const std::string& text);

}  // namespace lockstep::tools
