#include "tools/cli/processes.h"

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "engine/core/error.h"
#include "engine/runtime/wait.h"

namespace lockstep::tools {
namespace {

constexpr int kPollMilliseconds = 20;

// Reads the output that is there now. Returns false if take() stops it.
bool drain(FileDescriptor& end, ChildStream stream, const TakeOutput& take) {
  std::array<char, 1 << 16> bytes;
  while (end.is_open()) {
    const ssize_t count = ::read(end.descriptor(), bytes.data(), bytes.size());
    if (count < 0) return true;  // nothing there now
    if (count == 0) {
      end.close();
    } else if (!take(stream, {bytes.data(), static_cast<std::size_t>(count)})) {
      return false;
    }
  }
  return true;
}

bool has_ended(pid_t process) {
  siginfo_t info{};
  return ::waitid(P_PID, static_cast<id_t>(process), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
         info.si_pid == process;
}

}  // namespace

void become(const char* operation, std::vector<std::string> words) {
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  std::fflush(nullptr);
  ::execvp(argv[0], argv.data());
  fail(ErrorCode::Io, operation, "cannot run {}: {}", words[0], std::strerror(errno));
}

ChildEnd read_child(launch::StartedProcess& process, double seconds, const TakeOutput& take) {
  const runtime::Deadline deadline = runtime::deadline_after(seconds);
  for (;;) {
    const bool is_over = has_ended(process.id);  // asked before its output is read
    if (!drain(process.out, ChildStream::out, take) ||
        !drain(process.err, ChildStream::err, take)) {
      return ChildEnd::stopped;
    }
    if (is_over) return ChildEnd::exited;
    if (runtime::has_passed(deadline)) return ChildEnd::out_of_time;
    std::array<pollfd, 2> streams{
        {{process.out.descriptor(), POLLIN, 0}, {process.err.descriptor(), POLLIN, 0}}};
    ::poll(streams.data(), streams.size(), kPollMilliseconds);
  }
}

int reap(pid_t child) {
  int status = 0;
  while (::waitpid(child, &status, 0) < 0) {
    require(errno == EINTR, ErrorCode::Io, "processes", "lost a child: {}", std::strerror(errno));
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void LastLine::add(std::string_view piece) {
  for (const char c : piece) {
    if (c != '\n') {
      line_ += c;
    } else if (!line_.empty()) {
      last_ = std::exchange(line_, {});
    }
  }
}

}  // namespace lockstep::tools
