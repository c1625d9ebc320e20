#include "engine/runtime/process_stat.h"

#include <fstream>
#include <sstream>

namespace lockstep::runtime {

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

}  // namespace lockstep::runtime
