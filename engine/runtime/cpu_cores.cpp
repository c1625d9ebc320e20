#include "engine/runtime/cpu_cores.h"

#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <system_error>
#include <vector>

namespace lockstep::runtime {

namespace {

// 0: of the calling thread.
std::vector<int> cores_of(pid_t thread) {
  cpu_set_t set;
  CPU_ZERO(&set);
  ::sched_getaffinity(thread, sizeof set, &set);
  std::vector<int> cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  }
  return cores;
}

}  // namespace

std::vector<int> allowed_cores() {
  return cores_of(::getpid());
}

std::vector<int> cores_of_this_thread() {
  return cores_of(0);
}

std::vector<int> part_of_cores(const std::vector<int>& cores, std::size_t part,
                               std::size_t num_parts) {
  if (cores.size() < num_parts) return {};
  const auto first = static_cast<std::ptrdiff_t>(cores.size() * part / num_parts);
  const auto end = static_cast<std::ptrdiff_t>(cores.size() * (part + 1) / num_parts);
  return {cores.begin() + first, cores.begin() + end};
}

void bind_to(const std::vector<int>& cores) noexcept {
  if (cores.empty()) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int core : cores) CPU_SET(core, &set);
  ::sched_setaffinity(0, sizeof set, &set);
}

void bind_as_caller(std::span<std::thread> threads) noexcept {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return;
  for (std::thread& thread : threads) {
    ::pthread_setaffinity_np(thread.native_handle(), sizeof set, &set);
  }
}

// Of a process that has ended since its file was opened, the read fails: a stream's buffer throws
// then, which the operator catches.
std::string read_process_file(pid_t process, const char* name, const std::filesystem::path& proc) {
  std::ostringstream text;
  text << std::ifstream(proc / std::to_string(process) / name, std::ios::binary).rdbuf();
  return text.str();
}

// From "4711 (a name) S 4700 ...": proc(5) counts the start as field 22, the state as field 3. The
// name may hold anything, so what follows it is counted from its end.
std::optional<ProcessStat> read_process_stat(pid_t process, const std::filesystem::path& proc) {
  const std::string text = read_process_file(process, "stat", proc);
  const std::size_t begin = text.find('(');
  const std::size_t end = text.rfind(')');
  if (begin == std::string::npos || end == std::string::npos) return std::nullopt;
  ProcessStat found;
  found.name = text.substr(begin + 1, end - begin - 1);
  std::istringstream fields(text.substr(end + 1));
  std::string state;
  fields >> state >> found.parent;
  for (int field = 5; field <= 22; ++field) fields >> found.start_time;
  return found;
}

namespace {

constexpr double kLargestShareOfOthers = 0.05;
// The kernel looks at a core a hundred times a second and counts for whoever runs: over a short
// time that is a matter of luck.
constexpr double kClockErrorSeconds = 0.06;
constexpr double kShortestWait = 0.01;  // of the wall time

double seconds_of(const timeval& time) {
  return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
}

double wall_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Adds up the lines of the cores that this process may use. Interrupts are left out: those of its
// own messages are among them.
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

// "ran waited times", in nanoseconds.
std::optional<double> waiting_seconds_of(const std::filesystem::path& thread) {
  std::ifstream file(thread / "schedstat");
  double ran = 0, waited = 0;
  if (!(file >> ran >> waited)) return std::nullopt;
  return 1e-9 * waited;
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

OwnUse own_use() {
  OwnUse own;
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  own.cpu_seconds = seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime);
  std::error_code no_more;
  for (std::filesystem::directory_iterator thread("/proc/self/task", no_more), end;
       !no_more && thread != end; thread.increment(no_more)) {
    const std::optional<double> waited = waiting_seconds_of(thread->path());
    if (waited) own.waiting_seconds[std::atoi(thread->path().filename().c_str())] = *waited;
  }
  return own;
}

void CoreProbe::sample() {
  Sample now;
  now.wall_seconds = wall_seconds();
  read_cores(now.total_seconds, now.stolen_seconds);
  now.own = own_use();
  if (!first_) {
    first_ = now;
  } else {
    // A thread that has ended keeps what it waited.
    now.own.waiting_seconds.merge(std::map(last_.own.waiting_seconds));
  }
  last_ = std::move(now);
}

CoreUse CoreProbe::use() const {
  CoreUse use;
  if (!first_) return use;
  use.wall_seconds = last_.wall_seconds - first_->wall_seconds;
  use.own_seconds = last_.own.cpu_seconds - first_->own.cpu_seconds;
  use.total_seconds = last_.total_seconds - first_->total_seconds;
  use.stolen_seconds = last_.stolen_seconds - first_->stolen_seconds;
  if (last_.own.waiting_seconds.empty()) return use;
  use.waiting_seconds = 0;
  for (const auto& [thread, seconds] : last_.own.waiting_seconds) {
    const auto before = first_->own.waiting_seconds.find(thread);
    *use.waiting_seconds +=
        seconds - (before == first_->own.waiting_seconds.end() ? 0 : before->second);
  }
  return use;
}

}  // namespace lockstep::runtime
