#include "tools/record/host_info.h"

#include <fmt/chrono.h>
#include <sys/utsname.h>

#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/runtime/logical_device.h"
#include "engine/runtime/physical_gpus.h"
#include "tools/flags/numbers.h"
#include "tools/record/version.h"

namespace lockstep::tools {
namespace {

// The value in the first line that begins with `key`, after the separator, without quotes.
std::string value_in(const char* path, const std::string& key, char separator) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.rfind(key, 0) != 0) continue;
    const std::size_t begin = line.find_first_not_of(" \t\"", line.find(separator) + 1);
    if (begin == std::string::npos) return {};
    const std::size_t end = line.find_last_not_of(" \t\"");
    return line.substr(begin, end - begin + 1);
  }
  return {};
}

std::string operating_system() {
  utsname names{};
  uname(&names);
  const std::string distribution = value_in("/etc/os-release", "PRETTY_NAME", '=');
  const std::string kernel = std::string(names.sysname) + " " + names.release;
  return distribution.empty() ? kernel : distribution + ", " + kernel;
}

nlohmann::ordered_json gpus() {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const runtime::PhysicalGpu& gpu : runtime::physical_gpus()) {
    list.push_back({{"name", gpu.name}, {"memory_bytes", gpu.memory_bytes}, {"uuid", gpu.uuid}});
  }
  return list;
}

}  // namespace

std::string cpu_name() {
  const std::string name = value_in("/proc/cpuinfo", "model name", ':');
  return name.empty() ? "unknown" : name;
}

nlohmann::ordered_json host_info() {
  return {{"cpu", cpu_name()},
          {"cores", runtime::num_cores()},
          {"memory_bytes", machine_memory_bytes()},
          {"os", operating_system()},
          {"gpus", gpus()},
          {"version", kVersion},
          {"build", kBuild}};
}

nlohmann::ordered_json file_head(std::string_view schema, const std::vector<std::string>& command) {
  return {{"schema", schema},
          {"date", fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)))},
          {"command", command},
          {"host", host_info()}};
}

}  // namespace lockstep::tools
