#include "tools/text/status_line.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <mutex>
#include <utility>

#include "tools/text/format.h"

namespace lockstep::tools {
namespace {

std::mutex mutex;
bool is_shown = false;

std::size_t num_columns() {
  winsize size{};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col < 2) return 79;
  return size.ws_col - 1;  // the last column would move the cursor on
}

constexpr auto kOld = std::chrono::milliseconds(100);
// The remaining time is estimated only after so many seconds.
constexpr double kShortestGuideSeconds = 0.5;

constexpr std::chrono::milliseconds kBetweenPictures(100);
constexpr double kBarWidth = 20;
constexpr std::size_t kMostLinks = 6;

std::string bar(double share) {
  const auto full = static_cast<std::size_t>(std::lround(kBarWidth * std::clamp(share, 0.0, 1.0)));
  return std::string(full, '#') + std::string(static_cast<std::size_t>(kBarWidth) - full, '.');
}

std::string device_line(int index, const slow_motion::Machine::DeviceState& state, double elapsed) {
  const double busy = elapsed > 0 ? state.busy_seconds / elapsed : 0;
  return fmt::format("gpu{:<3} {} {:>3.0f} % busy  {:<24} {}", index, bar(busy), 100 * busy,
                     state.kernel != nullptr ? state.kernel : "-",
                     state.communication != nullptr ? state.communication : "");
}

}  // namespace

bool has_status_line() {
  static const bool is_terminal = isatty(STDERR_FILENO) == 1;
  return is_terminal;
}

void show_status(std::string_view text) {
  if (!has_status_line()) return;
  const std::lock_guard lock(mutex);
  fmt::print(stderr, "\r{}\033[K", text.substr(0, num_columns()));
  std::fflush(stderr);
  is_shown = true;
}

void clear_status() {
  const std::lock_guard lock(mutex);
  if (!is_shown) return;
  fmt::print(stderr, "\r\033[K");
  std::fflush(stderr);
  is_shown = false;
}

Progress::Progress(std::vector<Row> rows) : rows_(std::move(rows)) {}

Progress::~Progress() {
  clear_status();
}

void Progress::begin_row() {
  num_done_ = 0;
  show();
}

void Progress::end_row() {
  ++row_;
  clear_status();
}

std::function<void(std::size_t)> Progress::observer() {
  if (!has_status_line()) return {};
  return [this](std::size_t num_done) {
    num_done_ = num_done;
    if (Clock::now() - shown_at_ >= kOld) show();
  };
}

void Progress::show() {
  const Row& row = rows_[row_];
  auto done = static_cast<double>(row_);  // rows
  if (row.num_steps > 0) {
    done += static_cast<double>(num_done_) / static_cast<double>(row.num_steps);
  }
  shown_at_ = Clock::now();
  const double seconds = std::chrono::duration<double>(shown_at_ - begin_).count();
  std::string text;
  if (rows_.size() > 1) text = fmt::format("row {} of {}: ", row_ + 1, rows_.size());
  text += row.what;
  if (row.num_steps > 0) text += fmt::format(", step {} of {}", num_done_, row.num_steps);
  if (done > 0 && seconds >= kShortestGuideSeconds) {
    const auto num_rows = static_cast<double>(rows_.size());
    text += fmt::format(", {:.0f} s left", seconds * (num_rows - done) / done);
  }
  show_status(text);
}

namespace {

// One line per device with its current work and its busy share, and one line for each of the links
// that have carried the most.
std::vector<std::string> lane_lines(const slow_motion::Machine& machine) {
  std::vector<std::string> lines;
  const double elapsed = runtime::to_seconds(machine.end() - machine.origin()) / machine.factor();
  const auto states = machine.device_states();
  for (std::size_t i = 0; i < states.size(); ++i) {
    lines.push_back(device_line(machine.devices()[i], states[i], elapsed));
  }
  const std::vector<double> bytes = machine.bytes_by_hop();
  std::vector<std::pair<double, predict::Hop>> links;
  for (predict::Hop hop = 0; hop < bytes.size(); ++hop) links.emplace_back(bytes[hop], hop);
  std::ranges::sort(links, std::greater<>());
  for (std::size_t i = 0; i < std::min(links.size(), kMostLinks); ++i) {
    const auto [sent, hop] = links[i];
    if (sent == 0) break;
    lines.push_back(
        fmt::format("{:<20} {:>10}, {:>6.2f} GB/s on average", machine.network().name_of(hop),
                    format_bytes(static_cast<std::size_t>(sent)), sent / elapsed / 1e9));
  }
  return lines;
}

}  // namespace

LaneWatch::LaneWatch(const slow_motion::Machine& machine) : machine_(machine) {
  if (!has_status_line()) return;
  thread_ = std::thread([this] { draw(); });
}

LaneWatch::~LaneWatch() {
  is_over_.store(true);
  if (thread_.joinable()) thread_.join();
}

void LaneWatch::draw() {
  while (!is_over_.load()) {
    std::this_thread::sleep_for(kBetweenPictures);
    const std::vector<std::string> lines = lane_lines(machine_);
    std::string picture;
    if (num_lines_ > 0) picture += fmt::format("\033[{}A", num_lines_);
    for (const std::string& line : lines) picture += fmt::format("\r{}\033[K\n", line);
    num_lines_ = lines.size();  // the number of links never falls
    fmt::print(stderr, "{}", picture);
    std::fflush(stderr);
  }
}

}  // namespace lockstep::tools
