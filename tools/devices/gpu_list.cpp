#include "tools/devices/gpu_list.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <numeric>

#include "engine/core/error.h"
#include "engine/runtime/logical_device.h"

namespace lockstep::tools {
namespace {

constexpr std::size_t kNoRow = static_cast<std::size_t>(-1);

// "00000000:3B:00.0" (NVML) and "0000:3b:00.0" (CUDA) alike as "3b:00.0" behind a domain number.
std::string normal_bus_id(const std::string& id) {
  const std::size_t colon = id.find(':');
  if (colon == std::string::npos) return {};
  const unsigned long domain = std::strtoul(id.c_str(), nullptr, 16);
  std::string rest = id.substr(colon);
  std::transform(rest.begin(), rest.end(), rest.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return fmt::format("{:x}{}", domain, rest);
}

std::size_t find_row(const std::vector<GpuRow>& rows, const runtime::PhysicalGpu& gpu) {
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const nvml::GpuStatus& status = rows[i].status;
    const std::string bus_id = normal_bus_id(status.pci_bus_id);
    if (!gpu.uuid.empty() && status.uuid == gpu.uuid) return i;
    if (!bus_id.empty() && bus_id == normal_bus_id(gpu.pci_bus_id)) return i;
  }
  return kNoRow;
}

// Fills a row with CUDA's facts about a GPU that NVML does not list.
GpuRow row_of(const runtime::PhysicalGpu& gpu, std::size_t index) {
  GpuRow row;
  row.status.index = index;
  row.status.name = gpu.name;
  row.status.uuid = gpu.uuid;
  row.status.pci_bus_id = gpu.pci_bus_id;
  row.status.compute_capability = nvml::ComputeCapability{gpu.major, gpu.minor};
  return row;
}

// Adds CUDA's GPUs and logical devices to the rows; rows that CUDA does not see are hidden.
void add_cuda(const CudaView& cuda, GpuList& list) {
  for (GpuRow& row : list.rows) row.visibility = GpuRow::Visibility::hidden;
  std::vector<std::size_t> row_of_gpu;
  for (const runtime::PhysicalGpu& gpu : cuda.gpus) {
    std::size_t row = find_row(list.rows, gpu);
    if (row == kNoRow) {
      row = list.rows.size();
      list.rows.push_back(row_of(gpu, row));
    }
    list.rows[row].visibility = GpuRow::Visibility::visible;
    row_of_gpu.push_back(row);
  }
  for (std::size_t id = 0; id < cuda.logical_gpus.size(); ++id) {
    const std::size_t row = row_of_gpu[static_cast<std::size_t>(cuda.logical_gpus[id])];
    list.rows[row].logical_ids.push_back(static_cast<int>(id));
    list.device_rows.push_back(row);
  }
  // For GPUs that NVML does not know, CUDA still says which reach each other.
  list.links.resize(list.rows.size());
  for (auto& line : list.links) line.resize(list.rows.size());
  for (std::size_t a = 0; a < cuda.peer_access.size(); ++a) {
    for (std::size_t b = 0; b < cuda.peer_access[a].size(); ++b) {
      std::optional<bool>& access = list.links[row_of_gpu[a]][row_of_gpu[b]].peer_access;
      if (!access) access = cuda.peer_access[a][b];
    }
  }
}

void add_hidden_note(GpuList& list) {
  std::vector<std::string> hidden;
  for (const GpuRow& row : list.rows) {
    if (row.visibility == GpuRow::Visibility::visible) continue;
    hidden.push_back(fmt::format("GPU {}", row.status.index));
  }
  if (hidden.empty()) return;
  list.notes.push_back(list.visible_devices
                           ? fmt::format("hidden by CUDA_VISIBLE_DEVICES={}: {}",
                                         *list.visible_devices, fmt::join(hidden, ", "))
                           : fmt::format("not seen by CUDA: {}", fmt::join(hidden, ", ")));
}

}  // namespace

CudaView read_cuda() {
  CudaView view;
  view.gpus = runtime::physical_gpus();
  view.problem = runtime::no_gpu_reason();
  view.logical_gpus = runtime::logical_gpus();
  for (const runtime::PhysicalGpu& from : view.gpus) {
    std::vector<bool>& line = view.peer_access.emplace_back();
    for (const runtime::PhysicalGpu& to : view.gpus) {
      line.push_back(runtime::has_peer_access(from.ordinal, to.ordinal));
    }
  }
  return view;
}

GpuList list_gpus(const nvml::Library& library, const CudaView& cuda,
                  const std::optional<std::string>& visible_devices) {
  GpuList list;
  list.nvml_problem = library.problem();
  list.cuda_problem = cuda.problem;
  list.visible_devices = visible_devices;
  if (library.available()) {
    const std::vector<nvml::GpuStatus> gpus = nvml::read_gpus(library);
    list.versions = nvml::read_versions(library);
    list.links = nvml::read_links(library, gpus);
    for (const nvml::GpuStatus& gpu : gpus) list.rows.push_back({gpu});
  }
  if (cuda.gpus.empty()) {
    for (std::size_t row = 0; row < list.rows.size(); ++row) list.device_rows.push_back(row);
    if (visible_devices && !list.rows.empty()) {
      list.notes.push_back(fmt::format("all GPUs, whatever CUDA_VISIBLE_DEVICES={} hides from CUDA",
                                       *visible_devices));
    }
  } else {
    add_cuda(cuda, list);
  }
  add_hidden_note(list);
  return list;
}

GpuList list_gpus(const nvml::Library& library) {
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  return list_gpus(library, read_cuda(),
                   visible ? std::optional<std::string>(visible) : std::nullopt);
}

std::vector<std::size_t> pick_devices(const GpuList& list, std::size_t count) {
  require(list.nvml_problem.empty(), ErrorCode::Device, "--free", "{}", list.nvml_problem);
  require(count <= list.device_rows.size(), ErrorCode::Usage, "--free",
          "asks for {} devices, and there {} {}{}", count,
          list.device_rows.size() == 1 ? "is" : "are", list.device_rows.size(),
          list.notes.empty() ? "" : "; " + list.notes.front());
  for (const std::size_t row : list.device_rows) {
    const nvml::GpuStatus& gpu = list.rows[row].status;
    require(gpu.memory.has_value(), ErrorCode::Device, "--free",
            "GPU {} does not report its free memory", gpu.index);
  }
  std::vector<std::size_t> ids(list.device_rows.size());
  std::iota(ids.begin(), ids.end(), std::size_t{0});
  std::ranges::stable_sort(ids, std::greater<>(), [&](std::size_t id) {
    return list.rows[list.device_rows[id]].status.memory->free_bytes;
  });
  ids.resize(count);
  return ids;
}

}  // namespace lockstep::tools
