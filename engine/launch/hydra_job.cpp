#include "engine/launch/hydra_job.h"

#include <fmt/format.h>

#include <sstream>

#include "engine/runtime/cpu_cores.h"

namespace lockstep::launch {
namespace {

constexpr const char* kProxy = "hydra_pmi_proxy";
constexpr int kMostGenerations = 64;  // between a rank and its proxy: shells, profilers, ...

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
    const auto found = runtime::read_process_stat(process, proc);
    if (!found) return std::nullopt;
    if (found->name != kProxy) {
      process = found->parent;
      continue;
    }
    const std::string port =
        value_of_flag(runtime::read_process_file(process, "cmdline", proc), "--control-port");
    if (!port.empty()) return fmt::format("{} --control-port {}", kProxy, port);
    const auto num_here = find_variable(environment, "MPI_LOCALNRANKS");
    if (!num_here || num_here != find_variable(environment, "PMI_SIZE")) return std::nullopt;
    return fmt::format("{} {} started at {}", kProxy, process, found->start_time);
  }
  return std::nullopt;
}

}  // namespace lockstep::launch
