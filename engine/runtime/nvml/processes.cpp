#include "engine/runtime/nvml/processes.h"

#include <fmt/format.h>
#include <pwd.h>
#include <sys/stat.h>

#include <vector>

#include "engine/runtime/process_stat.h"

namespace lockstep::nvml {
namespace {

std::string user_name(uid_t user) {
  std::vector<char> buffer(16384);
  passwd entry{};
  passwd* found = nullptr;
  if (getpwuid_r(user, &entry, buffer.data(), buffer.size(), &found) == 0 && found != nullptr) {
    return found->pw_name;
  }
  return std::to_string(user);
}

// Words that others chose: control characters would confuse a terminal.
std::string printable(std::string text) {
  while (!text.empty() && text.back() == '\0') text.pop_back();
  for (char& c : text) {
    if (c >= '\0' && c < ' ') c = ' ';
    if (c == '\x7f') c = '?';
  }
  return text;
}

bool descends_from(int pid, int ancestor) {
  std::optional<int> current = pid;
  while (current && *current != ancestor) current = parent_of(*current);
  return current.has_value();
}

}  // namespace

std::optional<ProcessOwner> find_owner(int pid) {
  struct stat folder {};
  if (stat(fmt::format("/proc/{}", pid).c_str(), &folder) != 0) return std::nullopt;
  std::string command = printable(runtime::read_process_file(pid, "cmdline"));
  if (command.empty()) command = printable(runtime::read_process_file(pid, "comm"));
  return ProcessOwner{user_name(folder.st_uid), command};
}

std::optional<int> parent_of(int pid) {
  const auto found = runtime::read_process_stat(pid);
  if (!found || found->parent <= 0) return std::nullopt;
  return found->parent;
}

bool are_relatives(int a, int b) {
  return descends_from(a, b) || descends_from(b, a);
}

}  // namespace lockstep::nvml
