#include "tools/cli/standard_output.h"

#include <signal.h>

#include <cerrno>
#include <cstdio>
#include <iostream>
#include <system_error>

#include "engine/core/error.h"

namespace lockstep::tools {

// A handler, since exec resets it; SIG_IGN would be inherited.
void survive_file_size_limit() {
  struct sigaction action {};
  action.sa_handler = [](int) {};
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  ::sigaction(SIGXFSZ, &action, nullptr);
}

void flush_standard_output() {
  const bool had_failed = std::ferror(stdout) != 0 || std::cout.fail();
  const bool fails_now = std::fflush(stdout) != 0;  // std::cout writes there too
  const int reason = errno;
  require(
      !had_failed && !fails_now, ErrorCode::Io, "stdout",
      "cannot write to standard output: {}; what was printed is not complete",
      fails_now ? std::generic_category().message(reason) : "the disk is full, or it is closed");
}

}  // namespace lockstep::tools
