// Shows progress on a terminal while a command runs: one line at the bottom, rewritten in place, or
// the lanes of --live. If stderr is not a terminal, nothing is ever written. Any thread may call
// these functions.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "simulate/slow_motion/machine.h"

namespace lockstep::tools {

// True if stderr is a terminal.
bool has_status_line();

// Replaces the line by this text, cut to the terminal's width.
void show_status(std::string_view text);

// Clears the line before other output is printed.
void clear_status();

// Shows the progress over all rows of a command: "row 3 of 9: ddp x2, step 40 of 72, 2 s left".
class Progress {
 public:
  struct Row {
    std::string what;
    std::size_t num_steps = 0;
  };

  explicit Progress(std::vector<Row> rows);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // Begins the next row and shows the line.
  void begin_row();
  // Clears the line, so that the row can be printed.
  void end_row();

  // Takes the number of steps that are done, and redraws the line if it is old; empty without a
  // terminal, so that steps cost nothing.
  std::function<void(std::size_t num_done)> observer();

 private:
  using Clock = std::chrono::steady_clock;

  void show();

  std::vector<Row> rows_;
  std::size_t row_ = 0;
  std::size_t num_done_ = 0;
  Clock::time_point begin_ = Clock::now();
  Clock::time_point shown_at_;
};

// While one lives, it draws the lanes on stderr about ten times a second, each time over the
// previous picture; the last one stays. It does nothing without a terminal.
class LaneWatch {
 public:
  explicit LaneWatch(const slow_motion::Machine& machine);
  ~LaneWatch();
  LaneWatch(const LaneWatch&) = delete;
  LaneWatch& operator=(const LaneWatch&) = delete;

 private:
  void draw();

  const slow_motion::Machine& machine_;
  std::size_t num_lines_ = 0;
  std::atomic<bool> is_over_{false};
  std::thread thread_;
};

}  // namespace lockstep::tools
