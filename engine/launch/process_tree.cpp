#include "engine/launch/process_tree.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <thread>

#include "engine/runtime/cpu_cores.h"
#include "engine/runtime/wait.h"

namespace lockstep::launch {
namespace {

struct Process {
  pid_t id;
  pid_t parent;
};

std::vector<Process> all_processes() {
  std::vector<Process> processes;
  std::error_code no_more;
  for (std::filesystem::directory_iterator entry("/proc", no_more), end; !no_more && entry != end;
       entry.increment(no_more)) {
    const std::string name = entry->path().filename();
    pid_t id = 0;
    const auto [rest, problem] = std::from_chars(name.data(), name.data() + name.size(), id);
    if (problem != std::errc{} || *rest != '\0') continue;
    if (const auto parent = runtime::parent_of(id)) processes.push_back({id, *parent});
  }
  return processes;
}

}  // namespace

bool adopt_orphans(bool adopt) {
  int before = 0;
  ::prctl(PR_GET_CHILD_SUBREAPER, &before);
  ::prctl(PR_SET_CHILD_SUBREAPER, adopt ? 1 : 0);
  return before != 0;
}

std::vector<pid_t> find_descendants(const std::vector<pid_t>& except) {
  const std::vector<Process> processes = all_processes();
  std::vector<pid_t> found{::getpid()};
  for (std::size_t i = 0; i < found.size(); ++i) {
    for (const Process& process : processes) {
      if (process.parent != found[i] || std::ranges::count(except, process.id)) continue;
      found.push_back(process.id);
    }
  }
  found.erase(found.begin());
  return found;
}

std::size_t kill_descendants(const std::vector<pid_t>& except) {
  const runtime::Deadline end = runtime::deadline_after(5);
  for (;;) {
    // Without children there are no descendants: orphans would have become children.
    if (except.empty()) {
      siginfo_t info{};
      if (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0) return 0;
    }
    const std::vector<pid_t> descendants = find_descendants(except);
    if (descendants.empty()) return 0;
    if (runtime::has_passed(end)) return descendants.size();
    for (const pid_t process : descendants) ::kill(process, SIGKILL);
    for (const pid_t process : descendants) ::waitpid(process, nullptr, WNOHANG);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace lockstep::launch
