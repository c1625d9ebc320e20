#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "tools/devices/gpu_table.h"
#include "tools/nvml/nvml.h"

namespace lockstep::tools {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

template <typename T>
json or_null(const std::optional<T>& value) {
  return value ? json(*value) : json();
}

json or_null(const std::string& text) {
  return text.empty() ? json() : json(text);
}

ordered_json process_json(const nvml::GpuProcess& process) {
  const auto owner = nvml::find_owner(process.pid);
  return {{"pid", process.pid},
          {"user", owner ? json(owner->user) : json()},
          {"command", owner ? json(owner->command) : json()},
          {"memory_bytes", or_null(process.memory_bytes)}};
}

ordered_json row_json(const GpuRow& row) {
  const nvml::GpuStatus& gpu = row.status;
  ordered_json devices = ordered_json::array();
  for (const int id : row.logical_ids) devices.push_back(fmt::format("cuda:{}", id));
  ordered_json json_row{{"gpu", gpu.index},
                        {"devices", devices},
                        {"visible", row.visibility == GpuRow::Visibility::visible},
                        {"name", or_null(gpu.name)},
                        {"uuid", or_null(gpu.uuid)},
                        {"pci_bus_id", or_null(gpu.pci_bus_id)}};
  json_row["compute_capability"] =
      gpu.compute_capability
          ? json(fmt::format("{}.{}", gpu.compute_capability->major, gpu.compute_capability->minor))
          : json();
  json_row["memory_used_bytes"] = gpu.memory ? json(gpu.memory->used_bytes) : json();
  json_row["memory_free_bytes"] = gpu.memory ? json(gpu.memory->free_bytes) : json();
  json_row["memory_total_bytes"] = gpu.memory ? json(gpu.memory->total_bytes) : json();
  json_row["utilization_percent"] = or_null(gpu.utilization_percent);
  json_row["temperature_celsius"] = or_null(gpu.temperature_celsius);
  json_row["power_watts"] = or_null(gpu.power_watts);
  json_row["power_limit_watts"] = or_null(gpu.power_limit_watts);
  json_row["processes"] = json();
  if (gpu.processes) {
    json_row["processes"] = json::array();
    for (const nvml::GpuProcess& process : *gpu.processes) {
      json_row["processes"].push_back(process_json(process));
    }
  }
  return json_row;
}

}  // namespace

ordered_json gpu_json(const GpuList& list) {
  ordered_json result{{"driver", or_null(list.versions.driver)},
                      {"nvml", or_null(list.versions.nvml)},
                      {"newest_cuda", or_null(list.versions.newest_cuda)},
                      {"nvml_problem", or_null(list.nvml_problem)},
                      {"cuda_problem", or_null(list.cuda_problem)},
                      {"cuda_visible_devices", or_null(list.visible_devices)},
                      {"gpus", ordered_json::array()},
                      {"links", ordered_json::array()},
                      {"notes", list.notes}};
  for (const GpuRow& row : list.rows) result["gpus"].push_back(row_json(row));
  for (std::size_t a = 0; a < list.rows.size(); ++a) {
    for (std::size_t b = 0; b < list.rows.size(); ++b) {
      if (a == b) continue;
      const nvml::GpuLink& link = list.links[a][b];
      result["links"].push_back({{"from", list.rows[a].status.index},
                                 {"to", list.rows[b].status.index},
                                 {"nvlinks", link.num_nvlinks},
                                 {"pcie", or_null(link.pcie_path)},
                                 {"peer_access", or_null(link.peer_access)}});
    }
  }
  return result;
}

}  // namespace lockstep::tools
