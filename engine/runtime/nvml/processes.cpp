#include "engine/runtime/nvml/processes.h"

#include <fmt/format.h>
#include <pwd.h>
#include <sys/stat.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <vector>

namespace lockstep::nvml {
namespace {

std::string read_proc(int pid, const char* name) {
  std::ifstream file(fmt::format("/proc/{}/{}", pid, name), std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

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
  std::string command = printable(read_proc(pid, "cmdline"));
  if (command.empty()) command = printable(read_proc(pid, "comm"));
  return ProcessOwner{user_name(folder.st_uid), command};
}

std::optional<int> parent_of(int pid) {
  // "pid (comm) state ppid ...", and comm may hold anything, so the last parenthesis counts.
  const std::string text = read_proc(pid, "stat");
  const std::size_t end = text.rfind(')');
  if (end == std::string::npos || end + 4 >= text.size()) return std::nullopt;
  const int parent = std::atoi(text.c_str() + end + 4);
  if (parent <= 0) return std::nullopt;
  return parent;
}

bool are_relatives(int a, int b) {
  return descends_from(a, b) || descends_from(b, a);
}

}  // namespace lockstep::nvml
