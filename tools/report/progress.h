// How far a command is, on the status line of a terminal: rows done, step, seconds left.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "tools/training/loop.h"

namespace lockstep::tools {

// "row 3 of 9: ddp x2, step 40 of 72, 2 s left".
struct ProgressState {
  std::size_t row = 0;  // from 0
  std::size_t num_rows = 1;
  std::string what;
  std::size_t step = 0;
  std::size_t num_steps = 0;                // 0: the row has no steps to count
  std::optional<double> seconds_left = {};  // absent as long as nobody knows
};
std::string to_string(const ProgressState& state);

// What is left after so much of the work took so long; absent before there is something to go by.
std::optional<double> seconds_left(double seconds, double work_done, double work_in_all);

// Of all rows of a command. A row's work is any measure of its length that all rows share.
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

}  // namespace lockstep::tools
