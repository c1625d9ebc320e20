// Starting a rank as a process.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

#include "engine/core/files.h"
#include "engine/launch/environment.h"

namespace lockstep::launch {

// What a started process gave us: nonblocking ends of its output.
struct StartedProcess {
  pid_t id = 0;
  FileDescriptor out;
  FileDescriptor err;
};

// Starts a program as the leader of a session of its own, with /dev/null as standard input, every
// signal as this process had it before it became a supervisor, and SIGKILL when this one dies.
// program: a path (find_program). cores: what it is bound to (runtime/cpu_cores.h); empty:
// nothing.
// Throws Error{Io} that says why it does not start.
StartedProcess start_process(const std::string& program, const std::vector<std::string>& command,
                             const Environment& environment, const std::vector<int>& cores = {});

// The file that execvp would start. Throws Error{Usage}, in the name of the operation that wants
// it, when there is none, or it is not executable.
std::string find_program(const std::string& name, const Environment& environment,
                         std::string_view operation = "run");

}  // namespace lockstep::launch
