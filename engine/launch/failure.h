// What the end of a rank means: its exit code, whether it is the failure to report, and its words.
#pragma once

#include <string>

#include "engine/launch/worker.h"

namespace lockstep::launch {

// "SIGTERM"; "signal 40" for one without a name.
std::string signal_name(int signal);

// What a shell says of a wait status: the exit code, or 128 + the signal's number.
int shell_code(int wait_status);

// Does a count as the first failure rather than b? One that was killed does (SIGKILL, SIGSEGV, ...,
// but not SIGABRT and SIGPIPE, which may be the answer to another rank's end); otherwise the one
// that ended first. REQUIRES: both have ended.
bool failed_before(const Worker& a, const Worker& b);

// "[run] rank 1 failed first: exit code 7; its last error line: ...; its log: ...". Where the
// error file says something else, also "its error: ...".
std::string describe_failure(const Worker& worker);

}  // namespace lockstep::launch
