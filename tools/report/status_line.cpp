#include "tools/report/status_line.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>
#include <mutex>

namespace lockstep::tools {
namespace {

std::mutex mutex;
bool is_shown = false;

std::size_t num_columns() {
  winsize size{};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col < 2) return 79;
  return size.ws_col - 1;  // the last column would move the cursor on
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

}  // namespace lockstep::tools
