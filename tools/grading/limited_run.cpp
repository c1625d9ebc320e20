#include "tools/grading/limited_run.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "engine/launch/process.h"
#include "engine/runtime/wait.h"

namespace lockstep::tools::grading {
namespace {

constexpr int kPollMilliseconds = 20;

// Appends what is there to be read. Returns false at the end of the stream.
bool drain(FileDescriptor& stream, std::string& text, std::size_t most_bytes) {
  std::array<char, 1 << 16> part;
  while (stream.is_open()) {
    const ssize_t count = ::read(stream.descriptor(), part.data(), part.size());
    if (count < 0) return true;  // nothing now
    if (count == 0) break;
    text.append(part.data(), static_cast<std::size_t>(count));
    if (text.size() > most_bytes) return true;
  }
  stream.close();
  return false;
}

bool has_ended(pid_t process) {
  siginfo_t info{};
  return ::waitid(P_PID, static_cast<id_t>(process), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
         info.si_pid == process;
}

void wait_for_output(const launch::StartedProcess& process) {
  std::array<pollfd, 2> streams{
      {{process.out.descriptor(), POLLIN, 0}, {process.err.descriptor(), POLLIN, 0}}};
  ::poll(streams.data(), streams.size(), kPollMilliseconds);
}

// Reads until the process has ended or broken a limit.
RunEnd::How watch(launch::StartedProcess& process, RunEnd& end, const RunLimits& limits) {
  const runtime::Deadline deadline = runtime::deadline_after(limits.seconds);
  for (;;) {
    const bool is_over = has_ended(process.id);
    drain(process.out, end.out, limits.out_bytes);
    drain(process.err, end.err, limits.error_bytes);
    if (end.out.size() > limits.out_bytes || end.err.size() > limits.error_bytes) {
      return RunEnd::How::too_much_output;
    }
    if (is_over) return RunEnd::How::exited;
    if (runtime::has_passed(deadline)) return RunEnd::How::out_of_time;
    wait_for_output(process);
  }
}

}  // namespace

RunEnd run_limited(const std::vector<std::string>& command, const launch::Environment& environment,
                   const RunLimits& limits) {
  launch::StartedProcess process = launch::start_process(command.at(0), command, environment);
  RunEnd end;
  end.how = watch(process, end, limits);
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
