// What a terminal shows while something runs: one line at the bottom, rewritten in place (how far a
// command is, for whom a rank waits), or the lanes of --watch. Where stderr is no terminal, nothing
// is ever written. Any thread may call these.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "engine/comm/slow_collective_notice.h"
#include "engine/launch/rendezvous.h"
#include "simulate/slow_motion/machine.h"

namespace lockstep::tools {

// Whether stderr is a terminal.
bool has_status_line();

// Shows the text, cut to the terminal's width, in place of the last one.
void show_status(std::string_view text);

// Leaves the line empty, for whoever prints next.
void clear_status();

// Shows who has not joined the job after two seconds; nothing where there is no terminal.
launch::WaitingNotice show_who_joins_late(int world_size);

// While it lives, who keeps a collective waiting for longer than two seconds is shown.
class ShowLateRanks {
 public:
  ShowLateRanks();

 private:
  std::optional<comm::SlowCollectiveNotice> watch_;  // only where there is a terminal
};

// "row 3 of 9: ddp x2, step 40 of 72, 2 s left": of all rows of a command. A row's work is any
// measure of its length that all rows share.
class Progress {
 public:
  struct Row {
    std::string what;
    std::size_t num_steps = 0;
    double work = 1;
  };

  explicit Progress(std::vector<Row> rows);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // The next row begins; the line is shown.
  void begin_row();
  // So many of its steps are done; the line is shown again if it is old.
  void step_done(std::size_t num_done);
  // Whoever prints the row finds an empty line.
  void end_row();

  // step_done() as an observer's; none where there is no terminal, so that steps cost nothing.
  std::function<void(std::size_t)> observer();

 private:
  using Clock = std::chrono::steady_clock;

  void show();

  std::vector<Row> rows_;
  double work_in_all_ = 0;
  double work_done_ = 0;  // of the rows before this one
  std::size_t row_ = 0;
  std::size_t num_done_ = 0;
  Clock::time_point begin_ = Clock::now();
  Clock::time_point shown_at_;
};

// While one lives, draws the lanes on stderr some ten times a second, each time over the picture
// before; the last one stays. Without a terminal there, or unless `is_on`, it does nothing.
class LaneWatch {
 public:
  LaneWatch(const slow_motion::Machine& machine, bool is_on);
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
