#include "tools/devices/gpu_table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

namespace lockstep::tools {

namespace {

using Rows = std::vector<std::vector<std::string>>;

// Lines without trailing spaces, whose columns are as wide as their widest cell. aligned: a letter
// per column, l or r.
std::string text_table(const std::string& aligned, const Rows& rows) {
  std::vector<std::size_t> widths(aligned.size(), 0);
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < widths.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < widths.size(); ++i) {
      if (i > 0) line += "  ";
      line += aligned[i] == 'l' ? fmt::format("{:<{}}", row[i], widths[i])
                                : fmt::format("{:>{}}", row[i], widths[i]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

constexpr std::size_t kMaxCommand = 64;  // so that a line stays within 110 columns

std::string or_dash(const std::string& text) {
  return text.empty() ? "-" : text;
}

std::string mib(std::optional<std::size_t> num_bytes) {
  return num_bytes ? fmt::format("{}", *num_bytes >> 20) : "-";
}

std::string with_unit(std::optional<double> value, const char* unit) {
  return value ? fmt::format("{:.0f} {}", *value, unit) : "-";
}

std::string power(const GpuStatus& gpu) {
  if (!gpu.power_watts) return "-";
  if (!gpu.power_limit_watts) return fmt::format("{:.0f} W", *gpu.power_watts);
  return fmt::format("{:.0f} / {:.0f} W", *gpu.power_watts, *gpu.power_limit_watts);
}

// "cuda:3", "cuda:0-7", "cuda:0,2"; "hidden", or "-" if this program uses no GPU.
std::string device_names(const GpuRow& row) {
  const std::vector<int>& ids = row.logical_ids;
  if (row.visibility == GpuRow::Visibility::hidden) return "hidden";
  if (ids.empty()) return "-";
  const bool is_range = ids.back() - ids.front() + 1 == static_cast<int>(ids.size());
  if (ids.size() > 2 && is_range) return fmt::format("cuda:{}-{}", ids.front(), ids.back());
  return fmt::format("cuda:{}", fmt::join(ids, ","));
}

std::string gpus_text(const GpuList& list) {
  Rows table{{"GPU", "device", "name", "compute", "used MiB", "free MiB", "total MiB", "util",
              "temp", "power"}};
  for (const GpuRow& row : list.rows) {
    const GpuStatus& gpu = row.status;
    const auto bytes = [&](std::size_t GpuMemory::*member) {
      return mib(gpu.memory ? std::optional(*gpu.memory.*member) : std::nullopt);
    };
    table.push_back({std::to_string(gpu.index), device_names(row), or_dash(gpu.name),
                     or_dash(gpu.compute_capability), bytes(&GpuMemory::used_bytes),
                     bytes(&GpuMemory::free_bytes), bytes(&GpuMemory::total_bytes),
                     with_unit(gpu.utilization_percent, "%"),
                     with_unit(gpu.temperature_celsius, "C"), power(gpu)});
  }
  return text_table("rllrrrrrrr", table);
}

std::string processes_text(const GpuList& list) {
  Rows table{{"GPU", "pid", "user", "used MiB", "process"}};
  std::vector<std::size_t> silent;
  for (const GpuRow& row : list.rows) {
    if (!row.status.processes) silent.push_back(row.status.index);
    for (const GpuProcess& process : row.status.processes.value_or(std::vector<GpuProcess>())) {
      const auto owner = find_owner(process.pid);
      table.push_back({std::to_string(row.status.index), std::to_string(process.pid),
                       owner ? owner->user : "-", mib(process.memory_bytes),
                       owner ? owner->command.substr(0, kMaxCommand) : "(not seen from here)"});
    }
  }
  std::string text;
  if (table.size() > 1) text = text_table("rrlrl", table);
  if (table.size() == 1 && silent.empty()) text = "no process has a compute context on a GPU\n";
  if (!silent.empty()) text += fmt::format("processes unknown: GPU {}\n", fmt::join(silent, ", "));
  return text;
}

// The words of `nvidia-smi topo`, without NV1, NV2, ...
constexpr std::pair<const char*, const char*> kPaths[] = {
    {"PIX", "one PCIe switch"},
    {"PXB", "several PCIe switches, no host bridge"},
    {"PHB", "a PCIe host bridge, in the CPU"},
    {"NODE", "several host bridges of one NUMA node"},
    {"SYS", "the interconnect between NUMA nodes"},
    {"NV#", "that many bonded NVLinks"},
};

bool is_nvlink(const GpuLink& link) {
  return link.path.starts_with("NV");
}

std::string link_text(const GpuLink& link) {
  const std::string path = or_dash(link.path);
  if (!link.peer_access) return path + " ?";
  return path + (*link.peer_access ? " peer" : "");
}

std::string links_text(const GpuList& list) {
  Rows table{{""}};
  for (const GpuRow& row : list.rows) {
    table[0].push_back(fmt::format("GPU {}", row.status.index));
  }
  std::set<std::string> paths;
  bool any_unknown = false;
  for (std::size_t a = 0; a < list.rows.size(); ++a) {
    std::vector<std::string> cells{fmt::format("GPU {}", list.rows[a].status.index)};
    for (std::size_t b = 0; b < list.rows.size(); ++b) {
      const GpuLink& link = list.machine.links[a][b];
      cells.push_back(a == b ? "X" : link_text(link));
      if (a == b) continue;
      paths.insert(is_nvlink(link) ? "NV#" : link.path);
      any_unknown = any_unknown || !link.peer_access;
    }
    table.push_back(std::move(cells));
  }
  std::string text = text_table(std::string(table[0].size(), 'l'), table);
  for (const auto& [path, meaning] : kPaths) {
    if (paths.contains(path)) text += fmt::format("{:<5} {}\n", path, meaning);
  }
  text +=
      "peer  the row's GPU reads the column's memory itself; without it copies go through the "
      "host\n";
  if (any_unknown) text += "?     unknown\n";
  return text;
}

}  // namespace

std::string gpu_table(const GpuList& list) {
  std::string text;
  if (!list.rows.empty()) text = fmt::format("{}\n{}", gpus_text(list), processes_text(list));
  if (list.rows.size() > 1) text += fmt::format("\n{}", links_text(list));
  if (!list.notes.empty() && !text.empty()) text += '\n';
  for (const std::string& note : list.notes) text += fmt::format("{}\n", note);
  return text;
}

namespace {

template <typename T>
nlohmann::json or_null(const std::optional<T>& value) {
  return value ? nlohmann::json(*value) : nlohmann::json();
}

nlohmann::json or_null(const std::string& text) {
  return text.empty() ? nlohmann::json() : nlohmann::json(text);
}

nlohmann::ordered_json process_json(const GpuProcess& process) {
  const auto owner = find_owner(process.pid);
  return {{"pid", process.pid},
          {"user", owner ? nlohmann::json(owner->user) : nlohmann::json()},
          {"command", owner ? nlohmann::json(owner->command) : nlohmann::json()},
          {"memory_bytes", or_null(process.memory_bytes)}};
}

nlohmann::ordered_json row_json(const GpuRow& row) {
  const GpuStatus& gpu = row.status;
  nlohmann::ordered_json devices = nlohmann::ordered_json::array();
  for (const int id : row.logical_ids) devices.push_back(fmt::format("cuda:{}", id));
  nlohmann::ordered_json json_row{{"gpu", gpu.index},
                                  {"devices", devices},
                                  {"visible", row.visibility == GpuRow::Visibility::visible},
                                  {"name", or_null(gpu.name)},
                                  {"uuid", or_null(gpu.uuid)},
                                  {"pci_bus_id", or_null(gpu.pci_bus_id)}};
  json_row["compute_capability"] = or_null(gpu.compute_capability);
  for (const auto& [key, member] : {std::pair("memory_used_bytes", &GpuMemory::used_bytes),
                                    std::pair("memory_free_bytes", &GpuMemory::free_bytes),
                                    std::pair("memory_total_bytes", &GpuMemory::total_bytes)}) {
    json_row[key] = gpu.memory ? nlohmann::json(*gpu.memory.*member) : nlohmann::json();
  }
  json_row["utilization_percent"] = or_null(gpu.utilization_percent);
  json_row["temperature_celsius"] = or_null(gpu.temperature_celsius);
  json_row["power_watts"] = or_null(gpu.power_watts);
  json_row["power_limit_watts"] = or_null(gpu.power_limit_watts);
  json_row["processes"] = nlohmann::json();
  if (gpu.processes) {
    json_row["processes"] = nlohmann::json::array();
    for (const GpuProcess& process : *gpu.processes) {
      json_row["processes"].push_back(process_json(process));
    }
  }
  return json_row;
}

}  // namespace

nlohmann::ordered_json gpu_json(const GpuList& list) {
  const MachineGpus& machine = list.machine;
  nlohmann::ordered_json result{{"driver", or_null(machine.driver)},
                                {"nvml", or_null(machine.nvml)},
                                {"newest_cuda", or_null(machine.newest_cuda)},
                                {"nvml_problem", or_null(machine.problem)},
                                {"cuda_problem", or_null(list.cuda_problem)},
                                {"cuda_visible_devices", or_null(list.visible_devices)},
                                {"gpus", nlohmann::ordered_json::array()},
                                {"links", nlohmann::ordered_json::array()},
                                {"notes", list.notes}};
  for (const GpuRow& row : list.rows) result["gpus"].push_back(row_json(row));
  for (std::size_t a = 0; a < list.rows.size(); ++a) {
    for (std::size_t b = 0; b < list.rows.size(); ++b) {
      if (a == b) continue;
      const GpuLink& link = machine.links[a][b];
      result["links"].push_back({{"from", list.rows[a].status.index},
                                 {"to", list.rows[b].status.index},
                                 {"nvlinks", is_nvlink(link) ? std::stoul(link.path.substr(2)) : 0},
                                 {"pcie", is_nvlink(link) ? nlohmann::json() : or_null(link.path)},
                                 {"peer_access", or_null(link.peer_access)}});
    }
  }
  return result;
}

}  // namespace lockstep::tools
