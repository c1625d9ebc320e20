// Carries the ranks' output from their pipes to this process's stdout and stderr, and to logs. If a
// reader is slow, writing waits for it, and so do the ranks.
#pragma once

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/core/error.h"
#include "engine/core/files.h"
#include "engine/launch/launcher.h"

namespace lockstep::launch {

// Cuts bytes into lines. A line longer than 64 KiB is cut into several. A carriage return also ends
// a line, so that progress which overwrites itself is seen at once.
class LineSplitter {
 public:
  using OnLine = std::function<void(std::string_view line)>;  // without its newline

  void add(std::string_view bytes, const OnLine& on_line) {
    for (const char c : bytes) {
      const bool is_end = c == '\n' || c == '\r';
      if (!is_end) pending_ += c;
      // "\r\n" ends one line, and a "\r" at the beginning of a line none.
      const bool ends_nothing = pending_.empty() && (c == '\r' || after_return_);
      after_return_ = c == '\r' && !pending_.empty();
      if (ends_nothing || (!is_end && pending_.size() < kMaxLineBytes)) continue;
      on_line(pending_);
      pending_.clear();
    }
  }

  // The end of the stream: text without a newline counts as a line too.
  void finish(const OnLine& on_line) {
    if (!pending_.empty()) on_line(pending_);
    pending_.clear();
  }

 private:
  static constexpr std::size_t kMaxLineBytes = 64 * 1024;

  std::string pending_;
  bool after_return_ = false;
};

// One output stream of a rank.
struct RankStream {
  FileDescriptor pipe;  // closed at its end
  bool on_console = true;
  FileDescriptor log;
  std::string log_path;
  LineSplitter lines;
};

// One rank, as the supervisor knows it.
struct RankProcess {
  int rank = 0;
  int local_rank = 0;
  pid_t process = 0;
  FileDescriptor pidfd;
  std::optional<int> wait_status;     // set when it has ended
  std::optional<int> end_number;      // 0 for the rank that ended first
  std::array<RankStream, 3> streams;  // [1] stdout, [2] stderr; [0] is not used
  std::string last_error_line;        // its last line on stderr that is not empty
  std::string held_line;              // the same line, while one report may stand for all ranks

  bool has_failed() const { return wait_status && *wait_status != 0; }
};

class RankOutput {
 public:
  explicit RankOutput(const LaunchOptions& options) : options_(options) {}

  // Decides where the streams of a rank go, and opens their logs. Throws Error{Io} if a log cannot
  // be made.
  void open(RankProcess& rank, int restart_count) {
    const auto& shown = options_.console_filter;
    const bool is_shown = shown.empty() || std::ranges::count(shown, rank.local_rank) > 0;
    for (const int number : {1, 2}) {
      RankStream& stream = stream_of(rank, number);
      const bool is_redirected = contains(options_.redirects, rank.local_rank, number);
      const bool is_teed = contains(options_.tee, rank.local_rank, number);
      stream.on_console = is_shown && (is_teed || !is_redirected);
      if (!is_redirected && !is_teed) continue;
      stream.log_path = log_path(options_, restart_count, rank.local_rank, number);
      std::error_code problem;
      std::filesystem::create_directories(std::filesystem::path(stream.log_path).parent_path(),
                                          problem);
      stream.log = FileDescriptor(::open(
          stream.log_path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0666));
      require(stream.log.is_open(), ErrorCode::Io, "run", "cannot write the log {}: {}",
              stream.log_path, std::strerror(problem ? problem.value() : errno));
    }
  }

  // Reads once from stream 1 (stdout) or 2 (stderr), without waiting. Closes it at its end.
  void read(RankProcess& rank, int number) {
    RankStream& stream = stream_of(rank, number);
    std::array<char, 64 * 1024> bytes;
    const ssize_t count = ::read(stream.pipe.descriptor(), bytes.data(), bytes.size());
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (count <= 0) return close(rank, number);
    const std::string_view text(bytes.data(), static_cast<std::size_t>(count));
    write_log(rank, number, text);
    stream.lines.add(text, [&](std::string_view line) { take_line(rank, number, line); });
  }

  void close(RankProcess& rank, int number) {
    RankStream& stream = stream_of(rank, number);
    stream.lines.finish([&](std::string_view line) { take_line(rank, number, line); });
    stream.pipe.close();
  }

  // Prints the held line now, if there is one.
  void show_held_line(RankProcess& rank) {
    if (!rank.held_line.empty()) show(rank, STDERR_FILENO, std::exchange(rank.held_line, {}));
  }

  // Prints a line of the launcher's own, on stderr.
  void say(std::string_view message) {
    print(STDERR_FILENO, fmt::format("lockstep: {}\n", message));
  }

  // True if the reader of stdout has gone, as in `lockstep run ... | head`.
  bool reader_has_gone() const { return reader_has_gone_; }
  // True if stdout or stderr could not be written for another reason.
  bool console_has_failed() const { return console_has_failed_; }

 private:
  static constexpr std::size_t kMaxQuotedBytes = 400;

  static bool contains(const std::vector<Streams>& by_local_rank, int local_rank, int number) {
    const auto index = static_cast<std::size_t>(local_rank);
    return index < by_local_rank.size() && (static_cast<int>(by_local_rank[index]) & number) != 0;
  }

  static RankStream& stream_of(RankProcess& rank, int number) {
    return rank.streams[static_cast<std::size_t>(number)];
  }

  void write_log(RankProcess& rank, int number, std::string_view text) {
    RankStream& stream = stream_of(rank, number);
    while (stream.log.is_open() && !text.empty()) {
      const ssize_t count = ::write(stream.log.descriptor(), text.data(), text.size());
      if (count > 0) {
        text.remove_prefix(static_cast<std::size_t>(count));
      } else if (errno != EINTR) {
        const char* const problem = std::strerror(errno);
        stream.log.close();
        stream.on_console = true;
        say(
            fmt::format("[run] cannot write the log {}: {}; rank {} goes on, and its output goes "
                        "to the console",
                        stream.log_path, problem, rank.rank));
      }
    }
  }

  // The last line of a Lockstep program is usually its error. It is held back until the rank goes
  // on, or the first failure has been reported with it.
  void take_line(RankProcess& rank, int number, std::string_view line) {
    show_held_line(rank);
    const bool is_blank = line.find_first_not_of(" \t\r") == std::string_view::npos;
    if (number == STDERR_FILENO && !is_blank) {
      rank.last_error_line = line.substr(0, kMaxQuotedBytes);
    }
    const bool is_error =
        line.starts_with("lockstep: [") && line.find("] warning: ") == std::string_view::npos;
    if (number == STDERR_FILENO && is_error) {
      rank.held_line = line;
    } else {
      show(rank, number, line);
    }
  }

  void show(const RankProcess& rank, int number, std::string_view line) {
    if (!rank.streams[static_cast<std::size_t>(number)].on_console) return;
    const bool is_plain = options_.lines == Lines::plain;
    print(number, fmt::format("{}{}\n", is_plain ? "" : fmt::format("[{}] ", rank.rank), line));
  }

  void print(int descriptor, const std::string& line) {
    bool& is_broken = is_broken_[static_cast<std::size_t>(descriptor)];
    for (std::string_view rest = line; !rest.empty() && !is_broken;) {
      const ssize_t count = ::write(descriptor, rest.data(), rest.size());
      if (count >= 0) {
        rest.remove_prefix(static_cast<std::size_t>(count));
      } else if (errno == EAGAIN) {
        pollfd room{descriptor, POLLOUT, 0};
        ::poll(&room, 1, -1);
      } else if (errno == EPIPE) {
        is_broken = true;
        reader_has_gone_ = reader_has_gone_ || descriptor == STDOUT_FILENO;
      } else if (errno != EINTR) {
        is_broken = console_has_failed_ = true;
        say(fmt::format("[run] cannot write to {}: {}; the ranks go on",
                        descriptor == STDOUT_FILENO ? "standard output" : "standard error",
                        std::strerror(errno)));
      }
    }
  }

  const LaunchOptions& options_;
  std::array<bool, 3> is_broken_{};  // indexed by descriptor
  bool reader_has_gone_ = false;
  bool console_has_failed_ = false;
};

}  // namespace lockstep::launch
