#include "tools/record/host_info.h"

#include <fmt/chrono.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>

#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/core/error.h"
#include "engine/runtime/logical_device.h"
#include "engine/runtime/physical_gpus.h"
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

std::uint64_t memory_bytes() {
  struct sysinfo memory {};
  sysinfo(&memory);
  return static_cast<std::uint64_t>(memory.totalram) * memory.mem_unit;
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
          {"memory_bytes", memory_bytes()},
          {"os", operating_system()},
          {"gpus", gpus()},
          {"version", kVersion},
          {"build", kBuild}};
}

void require_memory(std::string_view flag, double num_bytes) {
  constexpr double kGib = std::size_t{1} << 30;
  const auto available = static_cast<double>(memory_bytes());
  require(num_bytes <= available, ErrorCode::Usage, flag,
          "asks for {:.1f} GiB of memory, and this machine has {:.1f}; use a smaller one",
          num_bytes / kGib, available / kGib);
}

nlohmann::ordered_json file_head(std::string_view schema, const std::vector<std::string>& command) {
  return {{"schema", schema},
          {"date", fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)))},
          {"command", command},
          {"host", host_info()}};
}

}  // namespace lockstep::tools
