#include "engine/runtime/cpu_use.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <sstream>
#include <system_error>
#include <vector>

#include "engine/runtime/threads.h"

namespace lockstep::runtime {

// Reading fails if the process has ended since its file was opened; the stream's buffer then
// throws, which the operator catches.
std::string read_process_file(pid_t process, const char* name, const std::filesystem::path& proc) {
  std::ostringstream text;
  text << std::ifstream(proc / std::to_string(process) / name, std::ios::binary).rdbuf();
  return text.str();
}

// Parses "4711 (a name) S 4700 ..."; the name may contain anything, even ") S 1".
std::optional<pid_t> parent_of(pid_t process, const std::filesystem::path& proc) {
  const std::string text = read_process_file(process, "stat", proc);
  const std::size_t end = text.rfind(')');
  if (end == std::string::npos) return std::nullopt;
  std::istringstream fields(text.substr(end + 1));
  std::string state;
  pid_t parent = 0;
  fields >> state >> parent;
  return parent;
}

namespace {

constexpr double kLargestShareOfOthers = 0.05;
// The kernel looks at a core a hundred times a second and charges whoever runs, which over a short
// time is a matter of luck.
constexpr double kClockErrorSeconds = 0.06;
constexpr double kShortestWait = 0.01;  // fraction of the wall time

// Adds up the lines of the cores that this process may use, without interrupts, which include those
// of its own messages.
void read_cores(double& total_seconds, double& stolen_seconds) {
  const std::vector<int> usable = allowed_cores();
  const double tick = 1 / static_cast<double>(sysconf(_SC_CLK_TCK));
  std::ifstream file("/proc/stat");
  for (std::string line; std::getline(file, line) && line.starts_with("cpu");) {
    int core = 0;
    if (std::from_chars(line.data() + 3, line.data() + line.size(), core).ec != std::errc{} ||
        !std::ranges::binary_search(usable, core)) {
      continue;
    }
    std::istringstream words(line);
    std::string name;
    double user = 0, nice = 0, system = 0, idle = 0, iowait = 0, irq = 0, softirq = 0, stolen = 0;
    words >> name >> user >> nice >> system >> idle >> iowait >> irq >> softirq >> stolen;
    total_seconds += tick * (user + nice + system);
    stolen_seconds += tick * stolen;
  }
}

// How long each thread of this process was ready but had no core, by its number.
std::map<int, double> waiting_seconds_of_threads() {
  std::map<int, double> seconds;
  std::error_code no_more;
  for (std::filesystem::directory_iterator thread("/proc/self/task", no_more), end;
       !no_more && thread != end; thread.increment(no_more)) {
    std::ifstream file(thread->path() / "schedstat");  // "ran waited times", in nanoseconds
    double ran = 0, waited = 0;
    if (file >> ran >> waited) {
      seconds[std::atoi(thread->path().filename().c_str())] = 1e-9 * waited;
    }
  }
  return seconds;
}

}  // namespace

std::optional<bool> is_disturbed(const CoreUse& use, std::size_t usable_cores) {
  if (use.wall_seconds <= 0) return false;
  if (use.total_seconds < use.own_seconds / 2 - kClockErrorSeconds) return std::nullopt;
  const double taken = std::max(0.0, use.total_seconds - use.own_seconds) + use.stolen_seconds;
  const double allowed =
      kLargestShareOfOthers * static_cast<double>(usable_cores) * use.wall_seconds +
      kClockErrorSeconds;
  const bool had_to_wait =
      !use.waiting_seconds || *use.waiting_seconds > kShortestWait * use.wall_seconds;
  return taken > allowed && had_to_wait;
}

double own_cpu_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

void CoreProbe::sample() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  Sample sample;
  sample.use.wall_seconds = std::chrono::duration<double>(now).count();
  read_cores(sample.use.total_seconds, sample.use.stolen_seconds);
  sample.use.own_seconds = own_cpu_seconds();
  sample.waiting_seconds = waiting_seconds_of_threads();
  sample.waiting_seconds.merge(last_.waiting_seconds);  // keeps ended threads' waits
  if (!first_) first_ = sample;
  last_ = std::move(sample);
}

CoreUse CoreProbe::use() const {
  if (!first_) return {};
  CoreUse use = last_.use;
  for (double CoreUse::*seconds : {&CoreUse::wall_seconds, &CoreUse::own_seconds,
                                   &CoreUse::total_seconds, &CoreUse::stolen_seconds}) {
    use.*seconds -= first_->use.*seconds;
  }
  if (last_.waiting_seconds.empty()) return use;
  use.waiting_seconds = 0;
  for (const auto& [thread, seconds] : last_.waiting_seconds) {
    const auto before = first_->waiting_seconds.find(thread);
    *use.waiting_seconds +=
        seconds - (before == first_->waiting_seconds.end() ? 0 : before->second);
  }
  return use;
}

}  // namespace lockstep::runtime
