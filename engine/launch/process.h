// Programs as processes: the environment as a value, finding and starting a program, and ending all
// processes below this one.
#pragma once

#include <sys/types.h>

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/core/files.h"

namespace lockstep::launch {

// A value, so that functions can take the environment as an argument.
using Environment = std::map<std::string, std::string, std::less<>>;

// This process's own variables.
Environment current_environment();

// The value of a variable; nullopt if it is unset, or empty, which counts as unset.
std::optional<std::string> find_variable(const Environment& environment, std::string_view name);

// The variable as a whole number from 0 on; nullopt if it is unset. Throws Error{Usage} that names
// it if it is something else.
std::optional<int> find_number(const Environment& environment, std::string_view name);

// The file that execvp would start. Throws Error{Usage}, tagged with the operation, if there is
// none or it is not executable.
std::string find_program(const std::string& name, const Environment& environment,
                         std::string_view operation = "run");

// A process and the nonblocking ends of its output.
struct StartedProcess {
  pid_t id = 0;
  FileDescriptor out;
  FileDescriptor err;
};

// Starts a program as the leader of a session of its own, with /dev/null as standard input, no
// signal blocked, and SIGKILL when this process dies (PR_SET_PDEATHSIG).
// program: a path (find_program). cores: those to bind it to (runtime/threads.h), if any.
// Throws Error{Io} that says why it does not start.
StartedProcess start_process(const std::string& program, const std::vector<std::string>& command,
                             const Environment& environment, const std::vector<int>& cores = {});

// Opens /dev/null as descriptor 0, 1 or 2 if that is closed (as after `lockstep ... >&-`), so that
// no file or socket gets its number and receives printed text. Reading and writing still fail with
// EBADF. Call it first in main.
void occupy_closed_standard_streams();

// Writes the error message that ends this process to the file that the launcher named for it
// (TORCHELASTIC_ERROR_FILE), in torch.distributed.elastic's format, so that torchrun's summary
// shows it. Does nothing if no launcher asks for it, or the file cannot be written.
inline constexpr const char* kErrorFileVariable = "TORCHELASTIC_ERROR_FILE";
void write_error_file(const Environment& environment, std::string_view message) noexcept;

// All processes that start below this one while it lives, even in a session of their own: from
// /proc. Children that were there before stay out of it: with `exec lockstep ... > >(tee log)`, the
// shell's tee is a child of lockstep.
class ProcessTree {
 public:
  // From now on, a descendant whose parent dies becomes a child of this process instead of init's
  // (PR_SET_CHILD_SUBREAPER), so that none gets lost.
  ProcessTree();
  ~ProcessTree();  // restores the setting
  ProcessTree(const ProcessTree&) = delete;
  ProcessTree& operator=(const ProcessTree&) = delete;

  std::vector<pid_t> find() const;

  // Sends SIGKILL to all of them until none is left, and reaps them. Returns how many are left
  // after five seconds: 0, except for processes of another user, or those that the kernel holds.
  std::size_t kill() const;

 private:
  std::vector<pid_t> strangers_;  // children from before
  int adopted_before_ = 0;
};

}  // namespace lockstep::launch
