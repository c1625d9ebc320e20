#include "engine/launch/failure.h"

#include <fmt/format.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>

#include "engine/launch/error_file.h"

namespace lockstep::launch {
namespace {

bool was_killed(const Worker& worker) {
  const int status = *worker.wait_status;
  return WIFSIGNALED(status) && WTERMSIG(status) != SIGABRT && WTERMSIG(status) != SIGPIPE;
}

}  // namespace

std::string signal_name(int signal) {
  const char* const name = ::sigabbrev_np(signal);
  return name ? fmt::format("SIG{}", name) : fmt::format("signal {}", signal);
}

int shell_code(int wait_status) {
  return WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : 128 + WTERMSIG(wait_status);
}

bool failed_before(const Worker& a, const Worker& b) {
  if (was_killed(a) != was_killed(b)) return was_killed(a);
  return a.end_number < b.end_number;
}

std::string describe_failure(const Worker& worker) {
  const int status = *worker.wait_status;
  std::string text = fmt::format(
      "[run] rank {} failed first: {}", worker.rank,
      WIFSIGNALED(status)
          ? fmt::format("signal {} ({})", WTERMSIG(status), signal_name(WTERMSIG(status)))
          : fmt::format("exit code {}", WEXITSTATUS(status)));
  if (!worker.last_error_line.empty()) {
    text += fmt::format("; its last error line: {}", worker.last_error_line);
  }
  const std::string message = read_error_file(worker.error_file);
  if (!message.empty() && worker.last_error_line.find(message) == std::string::npos) {
    text += fmt::format("; its error: {}", message);
  }
  const std::string& log = worker.streams[2].log.path();
  if (!log.empty()) text += fmt::format("; its log: {}", log);
  return text;
}

}  // namespace lockstep::launch
