#include "engine/launch/hydra_job.h"

#include <fmt/format.h>

#include <fstream>
#include <iterator>
#include <sstream>

namespace lockstep::launch {
namespace {

constexpr const char* kProxy = "hydra_pmi_proxy";
constexpr int kMostGenerations = 64;  // between a rank and its proxy: shells, profilers, ...

std::string read_all(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

struct JobProcess {
  std::string name;  // the kernel's: 15 characters at most
  pid_t parent = 0;
  std::string start_time;
};

// From "4711 (a name) S 4700 ...": proc(5) counts the start as field 22, the state as field 3.
JobProcess read_process(const std::filesystem::path& folder) {
  const std::string text = read_all(folder / "stat");
  const std::size_t begin = text.find('(');
  const std::size_t end = text.rfind(')');
  JobProcess process;
  if (begin == std::string::npos || end == std::string::npos) return process;
  process.name = text.substr(begin + 1, end - begin - 1);
  std::istringstream fields(text.substr(end + 1));
  std::string state;
  fields >> state >> process.parent;
  for (int field = 5; field <= 22; ++field) fields >> process.start_time;
  return process;
}

// The value of a flag on a command line as /proc shows it, words ended by zeros; "" without it.
std::string value_of_flag(const std::string& command_line, const std::string& flag) {
  std::istringstream words(command_line);
  for (std::string word; std::getline(words, word, '\0');) {
    if (word == flag && std::getline(words, word, '\0')) return word;
  }
  return "";
}

}  // namespace

std::optional<std::string> find_hydra_job(const Environment& environment, pid_t process,
                                          const std::filesystem::path& proc) {
  if (!find_variable(environment, "PMI_RANK") &&
      !find_variable(environment, "MV2_COMM_WORLD_RANK")) {
    return std::nullopt;
  }
  for (int generation = 0; generation < kMostGenerations && process > 1; ++generation) {
    const std::filesystem::path folder = proc / std::to_string(process);
    const JobProcess found = read_process(folder);
    if (found.name != kProxy) {
      process = found.parent;
      continue;
    }
    const std::string port = value_of_flag(read_all(folder / "cmdline"), "--control-port");
    if (!port.empty()) return fmt::format("{} --control-port {}", kProxy, port);
    const auto num_here = find_variable(environment, "MPI_LOCALNRANKS");
    if (!num_here || num_here != find_variable(environment, "PMI_SIZE")) return std::nullopt;
    return fmt::format("{} {} started at {}", kProxy, process, found.start_time);
  }
  return std::nullopt;
}

}  // namespace lockstep::launch
