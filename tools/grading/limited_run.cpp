#include <fmt/format.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>

#include "tools/cli/processes.h"
#include "tools/grading/sandbox.h"

namespace lockstep::tools::grading {

RunEnd run_limited(const std::vector<std::string>& command, const launch::Environment& environment,
                   const RunLimits& limits) {
  launch::StartedProcess process = launch::start_process(command.at(0), command, environment);
  RunEnd end;
  const auto take = [&](ChildStream stream, std::string_view piece) {
    (stream == ChildStream::out ? end.out : end.err) += piece;
    return end.out.size() <= limits.out_bytes && end.err.size() <= limits.error_bytes;
  };
  switch (read_child(process, limits.seconds, take)) {
    case ChildEnd::exited:
      break;
    case ChildEnd::out_of_time:
      end.how = RunEnd::How::out_of_time;
      break;
    case ChildEnd::stopped:
      end.how = RunEnd::How::too_much_output;
  }
  // Before the leader is reaped: until then nobody else gets the group's number.
  ::kill(-process.id, SIGKILL);
  int status = 0;
  ::waitpid(process.id, &status, 0);
  if (end.how != RunEnd::How::exited) return end;
  const int code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  const bool is_signal = code > 128 && code < 128 + NSIG;  // bubblewrap tells it so
  end.how = is_signal ? RunEnd::How::signalled : RunEnd::How::exited;
  end.code = is_signal ? code - 128 : code;
  return end;
}

std::string describe(const RunEnd& end, const RunLimits& limits) {
  switch (end.how) {
    case RunEnd::How::exited:
      return fmt::format("exited with code {}", end.code);
    case RunEnd::How::signalled:
      if (end.code == SIGKILL || end.code == SIGXCPU) {
        return "was stopped: it used up its processor time";
      }
      return fmt::format("crashed: {}", ::strsignal(end.code));
    case RunEnd::How::out_of_time:
      return fmt::format("was stopped after {} s: it loops, or waits for ever", limits.seconds);
    case RunEnd::How::too_much_output:
      return fmt::format("was stopped: it printed more than {} KiB", limits.error_bytes >> 10);
  }
  return {};
}

}  // namespace lockstep::tools::grading
