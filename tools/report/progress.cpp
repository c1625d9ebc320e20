#include "tools/report/progress.h"

#include <fmt/format.h>

#include <utility>

#include "tools/report/status_line.h"

namespace lockstep::tools {
namespace {

constexpr auto kOld = std::chrono::milliseconds(100);
// So much has to be seen before anything is said of the rest.
constexpr double kShortestGuideSeconds = 0.5;

}  // namespace

std::string to_string(const ProgressState& state) {
  std::string text;
  if (state.num_rows > 1) text = fmt::format("row {} of {}: ", state.row + 1, state.num_rows);
  text += state.what;
  if (state.num_steps > 0) text += fmt::format(", step {} of {}", state.step, state.num_steps);
  if (state.seconds_left) text += fmt::format(", {:.0f} s left", *state.seconds_left);
  return text;
}

std::optional<double> seconds_left(double seconds, double work_done, double work_in_all) {
  if (work_done <= 0 || seconds < kShortestGuideSeconds) return std::nullopt;
  return seconds * (work_in_all - work_done) / work_done;
}

Progress::Progress(std::vector<Row> rows) : rows_(std::move(rows)) {
  for (const Row& row : rows_) work_in_all_ += row.work;
}

Progress::~Progress() {
  clear_status();
}

void Progress::begin_row() {
  num_done_ = 0;
  show();
}

void Progress::step_done(std::size_t num_done) {
  num_done_ = num_done;
  if (Clock::now() - shown_at_ >= kOld) show();
}

void Progress::end_row() {
  work_done_ += rows_[row_++].work;
  clear_status();
}

std::function<void(std::size_t)> Progress::observer() {
  if (!has_status_line()) return {};
  return [this](std::size_t num_done) { step_done(num_done); };
}

void Progress::show() {
  const Row& row = rows_[row_];
  double done = work_done_;
  if (row.num_steps > 0) {
    done += row.work * static_cast<double>(num_done_) / static_cast<double>(row.num_steps);
  }
  shown_at_ = Clock::now();
  const double seconds = std::chrono::duration<double>(shown_at_ - begin_).count();
  show_status(to_string({row_, rows_.size(), row.what, num_done_, row.num_steps,
                         seconds_left(seconds, done, work_in_all_)}));
}

}  // namespace lockstep::tools
