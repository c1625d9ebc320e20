#include "tools/doctor/examined_program.h"

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>

#include "engine/core/files.h"
#include "engine/launch/process.h"

namespace lockstep::doctor {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kMostKept = std::size_t{1} << 20;

// One of the program's streams.
class Stream {
 public:
  explicit Stream(FileDescriptor end) : end_(std::move(end)) {}

  int descriptor() const { return end_.descriptor(); }
  bool is_open() const { return end_.descriptor() >= 0; }
  const std::string& text() const { return text_; }

  // What there is to read now: passes it on, and keeps the beginning and the last line.
  void read() {
    std::array<char, 65536> bytes{};
    const ssize_t count = ::read(descriptor(), bytes.data(), bytes.size());
    if (count < 0) return;
    if (count == 0) return end_.close();
    const std::string_view piece(bytes.data(), static_cast<std::size_t>(count));
    std::fwrite(piece.data(), 1, piece.size(), stderr);
    text_ += piece.substr(0, kMostKept - std::min(kMostKept, text_.size()));
    for (const char c : piece) {
      if (c != '\n') {
        line_ += c;
      } else if (!line_.empty()) {
        last_line_ = std::exchange(line_, {});
      }
    }
  }
  std::string last_line() const { return line_.empty() ? last_line_ : line_; }

 private:
  FileDescriptor end_;
  std::string text_;
  std::string line_;
  std::string last_line_;
};

// False when the time is over before both streams end.
bool read_streams(Stream& out, Stream& err, Clock::time_point until) {
  while (out.is_open() || err.is_open()) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now()).count();
    if (left <= 0) return false;
    std::array<pollfd, 2> events{{{out.descriptor(), POLLIN, 0}, {err.descriptor(), POLLIN, 0}}};
    if (::poll(events.data(), events.size(), static_cast<int>(std::min<long>(left, 1000))) <= 0) {
      continue;
    }
    if (events[0].revents != 0) out.read();
    if (events[1].revents != 0) err.read();
  }
  return true;
}

}  // namespace

Examined run_examined(const std::vector<std::string>& command, const std::filesystem::path& folder,
                      double timeout_seconds) {
  launch::Environment environment = launch::current_environment();
  const std::string program = launch::find_program(command.at(0), environment, "doctor");
  environment["LOCKSTEP_AUDIT"] = folder.string();
  const bool adopted_before = launch::adopt_orphans(true);
  launch::StartedProcess started = launch::start_process(program, command, environment);
  Stream out(std::move(started.out));
  Stream err(std::move(started.err));
  const auto limit = std::chrono::duration<double>(std::min(timeout_seconds, 1e6));
  Examined examined;
  examined.has_timed_out =
      !read_streams(out, err, Clock::now() + std::chrono::duration_cast<Clock::duration>(limit));
  if (examined.has_timed_out) {
    launch::kill_descendants();
    examined.exit_code = 128 + SIGKILL;
  } else {
    int status = 0;
    ::waitpid(started.id, &status, 0);
    examined.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    launch::kill_descendants();
  }
  launch::adopt_orphans(adopted_before);
  examined.output = out.text();
  examined.last_error = err.last_line();
  return examined;
}

}  // namespace lockstep::doctor
