#include "tools/flags/output_path.h"

#include <signal.h>

#include <cerrno>
#include <cstdio>
#include <iostream>
#include <system_error>

#include "engine/core/error.h"
#include "engine/core/files.h"

namespace lockstep::tools {
namespace {

void require_writable(const OutputPath& output) {
  if (output.path == "-") {
    require(output.flag == "--json", ErrorCode::Usage, output.flag,
            "'-' is standard output, which only --json writes to; name a file");
    return;
  }
  try {
    check_writable(output.path);
  } catch (const Error& error) {
    // The flag tells the user more than the operation "[save]".
    throw Error(error.code(), output.flag, error.message());
  }
}

}  // namespace

void require_writable(const std::vector<OutputPath>& outputs) {
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const OutputPath& output = outputs[i];
    if (output.path.empty()) continue;
    require_writable(output);
    for (std::size_t k = 0; k < i && output.path != "-"; ++k) {
      const OutputPath& other = outputs[k];
      require(other.path.empty() || other.path == "-" || !is_same_file(output.path, other.path),
              ErrorCode::Usage, output.flag, "'{}' is also the file of {}; name two files",
              output.path, other.flag);
    }
  }
}

// The signal gets a handler and not SIG_IGN, which started programs would inherit: exec resets
// handlers.
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
