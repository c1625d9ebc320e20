#include "engine/launch/descendants.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <thread>

#include "engine/runtime/wait.h"

namespace lockstep::launch {
namespace {

struct Process {
  pid_t id;
  pid_t parent;
};

// Of "<pid> (<name>) <state> <parent> ...": the name may hold anything, so count from its end.
pid_t parent_of(const char* id) {
  char text[512];
  std::snprintf(text, sizeof text, "/proc/%s/stat", id);
  const int file = ::open(text, O_RDONLY | O_CLOEXEC);
  if (file < 0) return -1;
  const ssize_t length = ::read(file, text, sizeof text - 1);
  ::close(file);
  if (length <= 0) return -1;
  text[length] = '\0';
  const char* const name_end = std::strrchr(text, ')');
  int parent = -1;
  char state = 0;
  if (!name_end || std::sscanf(name_end + 1, " %c %d", &state, &parent) != 2) return -1;
  return parent;
}

std::vector<Process> all_processes() {
  std::vector<Process> processes;
  DIR* const folder = ::opendir("/proc");
  if (!folder) return processes;
  while (const dirent* entry = ::readdir(folder)) {
    const char* const name = entry->d_name;
    pid_t id = 0;
    const auto [rest, problem] = std::from_chars(name, name + std::strlen(name), id);
    if (problem == std::errc{} && *rest == '\0') processes.push_back({id, parent_of(name)});
  }
  ::closedir(folder);
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
