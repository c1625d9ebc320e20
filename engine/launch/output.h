// Carries the ranks' output from their pipes to this process's stdout and stderr, and to logs. If a
// reader is slow, writing waits for it, and so do the ranks.
#pragma once

#include <sys/types.h>

#include <array>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "engine/core/files.h"
#include "engine/launch/launcher.h"

namespace lockstep::launch {

// Cuts bytes into lines. A line longer than 64 KiB is cut into several. A carriage return also ends
// a line, so that progress which overwrites itself is seen at once.
class LineSplitter {
 public:
  using OnLine = std::function<void(std::string_view line)>;  // without its newline

  void add(std::string_view bytes, const OnLine& on_line);
  // The end of the stream: text without a newline counts as a line too.
  void finish(const OnLine& on_line);

 private:
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
  void open(RankProcess& rank, int restart_count);

  // Reads once from stream 1 (stdout) or 2 (stderr), without waiting. Closes it at its end.
  void read(RankProcess& rank, int number);
  void close(RankProcess& rank, int number);

  // Prints the held line now, if there is one.
  void show_held_line(RankProcess& rank);

  // Prints a line of the launcher's own, on stderr.
  void say(std::string_view message);

  // True if the reader of stdout has gone, as in `lockstep run ...
  // head`.
  bool reader_has_gone() const { return reader_has_gone_; }
  // True if stdout or stderr could not be written for another reason.
  bool console_has_failed() const { return console_has_failed_; }

 private:
  void write_log(RankProcess& rank, int number, std::string_view text);
  void take_line(RankProcess& rank, int number, std::string_view line);
  void show(const RankProcess& rank, int number, std::string_view line);
  void print(int descriptor, const std::string& line);

  const LaunchOptions& options_;
  std::array<bool, 3> is_broken_{};  // by descriptor
  bool reader_has_gone_ = false;
  bool console_has_failed_ = false;
};

}  // namespace lockstep::launch
