#include "tools/run/interruption.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <string>

#include "tools/text/status_line.h"

namespace lockstep::tools {
namespace {

constexpr std::array kSignals{SIGINT, SIGTERM};
constexpr std::int64_t kSecondAfterNanoseconds = 200'000'000;

// The handler's; only types that are lock-free may be used there.
std::atomic<bool> watched{false};
std::atomic<int> first_signal{0};
std::atomic<std::int64_t> first_time{0};
std::string announcement;  // changes only while no handler is installed
std::array<struct sigaction, kSignals.size()> handlers_before;
static_assert(std::atomic<std::int64_t>::is_always_lock_free);

void note_signal(int signal) {
  const int error = errno;
  timespec time{};
  ::clock_gettime(CLOCK_MONOTONIC, &time);
  const std::int64_t now = 1'000'000'000 * static_cast<std::int64_t>(time.tv_sec) + time.tv_nsec;
  std::int64_t first = 0;
  if (first_time.compare_exchange_strong(first, now)) {
    first_signal = signal;
    (void)!::write(STDERR_FILENO, announcement.data(), announcement.size());
  } else if (now - first >= kSecondAfterNanoseconds) {
    ::signal(signal, SIG_DFL);
    ::raise(signal);  // takes effect when this handler returns
  }
  errno = error;
}

}  // namespace

Interruption::Interruption(const char* what_ends) {
  first_signal = 0;
  first_time = 0;
  announcement.clear();
  if (what_ends) {
    // A terminal shows ^C, or a status line, where the cursor is.
    announcement = fmt::format(
        "{}lockstep: interrupted: ending {}, then writing; a second signal ends at once\n",
        ::isatty(STDERR_FILENO) == 1 ? "\n" : "", what_ends);
  }
  watched = true;
  struct sigaction action {};
  action.sa_handler = note_signal;
  action.sa_flags = SA_RESTART;
  for (const int signal : kSignals) sigaddset(&action.sa_mask, signal);
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    ::sigaction(kSignals[i], nullptr, &handlers_before[i]);
    if (handlers_before[i].sa_handler != SIG_IGN) ::sigaction(kSignals[i], &action, nullptr);
  }
}

Interruption::~Interruption() {
  for (std::size_t i = 0; i < kSignals.size(); ++i)
    ::sigaction(kSignals[i], &handlers_before[i], nullptr);
  watched = false;
}

int Interruption::signal() {
  return first_signal;
}

bool Interruption::is_watched() {
  return watched;
}

void throw_if_interrupted() {
  if (const int signal = Interruption::signal()) throw Interrupted{signal};
}

std::string signal_name(int signal) {
  return signal == SIGTERM ? "SIGTERM" : "SIGINT";
}

int say_interrupted(int signal, const std::string& done, const std::string& written) {
  std::fflush(stdout);
  clear_status();
  fmt::print(stderr, "lockstep: interrupted by {} after {}; wrote {}\n", signal_name(signal), done,
             written.empty() ? "nothing" : written);
  return 128 + signal;
}

}  // namespace lockstep::tools
