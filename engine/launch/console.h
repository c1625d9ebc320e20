// Output of several ranks on the way to this process's stdout and stderr: whole lines, in the order
// in which they came, never waiting inside a write.
#pragma once

#include <deque>
#include <functional>
#include <string>
#include <string_view>

namespace lockstep::launch {

// Cuts bytes into lines. A line longer than 64 KiB is cut into several.
class LineSplitter {
 public:
  using OnLine = std::function<void(std::string_view line)>;  // without its newline

  void add(std::string_view bytes, const OnLine& on_line);
  // The end of the stream: what has no newline yet is a line too.
  void finish(const OnLine& on_line);

 private:
  std::string pending_;
};

class Console {
 public:
  // Appends a line for descriptor 1 or 2.
  void print(int descriptor, std::string_view prefix, std::string_view line);

  bool is_empty() const { return lines_.empty(); }
  // Somebody reads slowly; it is time to let the ranks wait.
  bool is_full() const { return num_bytes_ > kManyBytes; }
  std::size_t num_bytes() const { return num_bytes_; }
  // The descriptor that must become writable next. REQUIRES: !is_empty().
  int waiting_for() const { return lines_.front().descriptor; }

  // Writes as much as can be written without waiting. REQUIRES: waiting_for() is writable.
  // Returns the error number when its descriptor cannot be written any more, the first time; from
  // then on what is meant for it is dropped. Else 0.
  int write_some();

  // Drops what waits, and all that comes later.
  void give_up();

 private:
  struct Line {
    int descriptor;
    std::string text;
  };
  static constexpr std::size_t kManyBytes = 256 * 1024;

  void drop_all_for(int descriptor);

  std::deque<Line> lines_;
  std::size_t num_written_ = 0;  // of the first line
  std::size_t num_bytes_ = 0;
  bool is_broken_[3] = {};
};

}  // namespace lockstep::launch
