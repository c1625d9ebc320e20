// One rank as a process: how it is started, and what the supervisor knows of it.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/launch/console.h"
#include "engine/launch/environment.h"
#include "engine/launch/log_file.h"

namespace lockstep::launch {

// What a started process gave us. The descriptors are nonblocking and belong to the caller.
struct StartedProcess {
  pid_t id = 0;
  int out = -1;
  int err = -1;
};

// Starts a program as the leader of a session of its own, with /dev/null as standard input, every
// signal as this process had it before it became a supervisor, and SIGKILL when this one dies.
// program: a path (find_program). cores: what it is bound to (core_binding.h); empty: nothing.
// Throws Error{Io} that says why it does not start.
StartedProcess start_process(const std::string& program, const std::vector<std::string>& command,
                             const Environment& environment, const std::vector<int>& cores = {});

// The file that execvp would start. Throws Error{Usage} when there is none, or it is not
// executable.
std::string find_program(const std::string& name, const Environment& environment);

// One output stream of a rank.
struct WorkerStream {
  int descriptor = -1;  // -1: at its end
  bool on_console = true;
  LogFile log;
  LineSplitter lines;
};

struct Worker {
  int rank = 0;
  int local_rank = 0;
  pid_t process = 0;
  std::optional<int> wait_status;     // set when it has ended
  std::size_t end_number = SIZE_MAX;  // in which order the ranks' stderr was closed; SIZE_MAX: not
  std::array<WorkerStream, 3> streams;  // [1] stdout, [2] stderr; [0] is not used
  std::string last_error_line;          // the last one on stderr that is not empty

  bool has_failed() const { return wait_status && *wait_status != 0; }
};

}  // namespace lockstep::launch
