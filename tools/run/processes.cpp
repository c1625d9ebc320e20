#include "tools/run/processes.h"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "engine/core/error.h"
#include "engine/launch/launcher.h"
#include "engine/launch/rendezvous.h"
#include "engine/runtime/wait.h"
#include "tools/run/interruption.h"

namespace lockstep::tools {
namespace {

constexpr int kPollMilliseconds = 20;

// Adds the output that is there now to the text, 4 MiB of it at most, so that a child that never
// stops meets its time limit. Returns false if the text is longer than its limit.
bool read_output(FileDescriptor& end, const ChildLimits& limits, std::string& text) {
  std::array<char, 1 << 16> bytes;
  for (int reads = 0; reads < 64 && end.is_open(); ++reads) {
    const ssize_t count = ::read(end.descriptor(), bytes.data(), bytes.size());
    if (count < 0) return true;  // nothing there now
    if (count == 0) {
      end.close();
      return true;
    }
    const auto size = static_cast<std::size_t>(count);
    if (limits.echo) std::fwrite(bytes.data(), 1, size, limits.echo);
    text.append(bytes.data(), size);
    if (text.size() <= limits.bytes) continue;
    if (limits.beyond_bytes == ChildLimits::BeyondBytes::end) return false;
    text.erase(0, text.size() - limits.bytes / 2);
  }
  return true;
}

bool has_ended(pid_t process) {
  siginfo_t info{};
  return ::waitid(P_PID, static_cast<id_t>(process), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
         info.si_pid == process;
}

}  // namespace

std::string this_program() {
  return std::filesystem::read_symlink("/proc/self/exe").string();
}

ChildEnd run_child(const std::vector<std::string>& command, const launch::Environment& environment,
                   const ChildLimits& limits) {
  launch::StartedProcess process = launch::start_process(command.at(0), command, environment);
  const runtime::Deadline deadline = runtime::deadline_after(limits.seconds);
  ChildEnd end;
  for (;;) {
    const bool is_over = has_ended(process.id);  // asked before its output is read
    if (!read_output(process.out, limits, end.out) || !read_output(process.err, limits, end.err)) {
      end.how = ChildEnd::How::too_much_output;
    } else if (!is_over && runtime::has_passed(deadline)) {
      end.how = ChildEnd::How::out_of_time;
    }
    if (is_over || end.how != ChildEnd::How::exited || Interruption::signal() != 0) break;
    std::array<pollfd, 2> streams{
        {{process.out.descriptor(), POLLIN, 0}, {process.err.descriptor(), POLLIN, 0}}};
    ::poll(streams.data(), streams.size(), kPollMilliseconds);
  }
  // Before its leader is reaped: until then no other group can get its number.
  ::kill(-process.id, SIGKILL);
  end.code = reap(process.id);
  throw_if_interrupted();
  const bool is_signal = end.code > 128 && end.code < 128 + NSIG;  // or a shell that reports one
  if (end.how == ChildEnd::How::exited && is_signal) end.how = ChildEnd::How::signalled;
  return end;
}

int start_ranks(const std::vector<std::string>& arguments, int num_ranks) {
  launch::LaunchOptions options;
  options.command = {this_program()};
  options.command.insert(options.command.end(), arguments.begin() + 1, arguments.end());
  options.environment = launch::current_environment();
  options.num_ranks = num_ranks;
  options.token = launch::make_token();
  options.lines = launch::Lines::plain;
  const launch::PortReservation port(0, launch::PortReservation::Scope::loopback);
  options.master_port = port.port();
  std::fflush(nullptr);
  return launch::launch_ranks(options);
}

int reap(pid_t child) {
  int status = 0;
  while (::waitpid(child, &status, 0) < 0) {
    require(errno == EINTR, ErrorCode::Io, "processes", "lost a child: {}", std::strerror(errno));
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

std::string last_line(const std::string& text) {
  const std::size_t end = text.find_last_not_of('\n');
  if (end == std::string::npos) return {};
  const std::size_t newline = text.find_last_of('\n', end);
  const std::size_t begin = newline == std::string::npos ? 0 : newline + 1;
  return text.substr(begin, end + 1 - begin);
}

}  // namespace lockstep::tools
