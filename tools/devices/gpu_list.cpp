#include "tools/devices/gpu_list.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <string_view>

#include "engine/core/error.h"
#include "engine/runtime/logical_device.h"

namespace lockstep::tools {
namespace {

constexpr const char* kRest = "CUDA ignores it and what follows";

// The GPU that an entry names, or the reason why it names none.
struct Named {
  std::optional<std::size_t> gpu;
  std::string problem;
};

Named find_by_uuid(std::string_view entry, const std::vector<GpuUuids>& uuids) {
  Named named;
  for (std::size_t i = 0; i < uuids.size(); ++i) {
    if (!uuids[i].gpu.starts_with(entry)) continue;
    if (named.gpu)
      return {std::nullopt, fmt::format("'{}' matches several GPUs: {}", entry, kRest)};
    named.gpu = i;
  }
  if (!named.gpu) named.problem = fmt::format("no GPU has the UUID '{}': {}", entry, kRest);
  return named;
}

Named find_by_slice(std::string_view entry, const std::vector<GpuUuids>& uuids) {
  for (std::size_t i = 0; i < uuids.size(); ++i) {
    const bool is_its = entry.starts_with("MIG-" + uuids[i].gpu + "/") ||
                        std::ranges::any_of(uuids[i].slices, [&](const std::string& slice) {
                          return slice.starts_with(entry);
                        });
    if (is_its) {
      return {i, fmt::format("'{}' is a slice of GPU {}: a program sees only this slice, and the "
                             "table shows the whole GPU",
                             entry, i)};
    }
  }
  return {std::nullopt, fmt::format("no GPU has the MIG slice '{}': {}", entry, kRest)};
}

Named find(std::string_view entry, const std::vector<GpuUuids>& uuids) {
  if (entry.starts_with("GPU-")) return find_by_uuid(entry, uuids);
  if (entry.starts_with("MIG-")) return find_by_slice(entry, uuids);
  // CUDA reads as many digits as there are, so that "1x" is 1.
  std::size_t number = 0;
  const auto [end, error] = std::from_chars(entry.data(), entry.data() + entry.size(), number);
  if (error != std::errc{}) {
    return {std::nullopt, fmt::format("there is no GPU number '{}': {}", entry, kRest)};
  }
  if (number >= uuids.size()) {
    return {std::nullopt, fmt::format("there is no GPU {}: {}", entry, kRest)};
  }
  return {number, {}};
}

}  // namespace

VisibleGpus read_visible_devices(const std::optional<std::string>& text,
                                 const std::vector<GpuUuids>& uuids) {
  VisibleGpus visible;
  if (!text) {
    for (std::size_t i = 0; i < uuids.size(); ++i) visible.gpus.push_back(i);
    return visible;
  }
  for (const std::string& entry : split_line(*text, ',')) {
    const Named named = find(entry, uuids);
    if (!named.problem.empty()) {
      visible.problems.push_back(named.problem);
      if (named.gpu && visible.gpus.empty()) visible.gpus.push_back(*named.gpu);
      return visible;
    }
    if (std::find(visible.gpus.begin(), visible.gpus.end(), *named.gpu) != visible.gpus.end()) {
      return {{}, {fmt::format("GPU {} is listed twice, so CUDA shows none", *named.gpu)}};
    }
    visible.gpus.push_back(*named.gpu);
  }
  return visible;
}

namespace {

constexpr std::size_t kNoRow = static_cast<std::size_t>(-1);

// "00000000:3B:00.0" (nvidia-smi) and "0000:3b:00.0" (CUDA) alike as "3b:00.0" behind a domain
// number.
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
    const GpuStatus& status = rows[i].status;
    const std::string bus_id = normal_bus_id(status.pci_bus_id);
    if (!gpu.uuid.empty() && status.uuid == gpu.uuid) return i;
    if (!bus_id.empty() && bus_id == normal_bus_id(gpu.pci_bus_id)) return i;
  }
  return kNoRow;
}

// Fills a row with CUDA's facts about a GPU that nvidia-smi does not list.
GpuRow row_of(const runtime::PhysicalGpu& gpu, std::size_t index) {
  GpuRow row;
  row.status.index = index;
  row.status.name = gpu.name;
  row.status.uuid = gpu.uuid;
  row.status.pci_bus_id = gpu.pci_bus_id;
  row.status.compute_capability = fmt::format("{}.{}", gpu.major, gpu.minor);
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
  // For GPUs that nvidia-smi does not know, CUDA still says which reach each other.
  list.machine.links.resize(list.rows.size());
  for (auto& line : list.machine.links) line.resize(list.rows.size());
  for (std::size_t a = 0; a < cuda.peer_access.size(); ++a) {
    for (std::size_t b = 0; b < cuda.peer_access[a].size(); ++b) {
      std::optional<bool>& access = list.machine.links[row_of_gpu[a]][row_of_gpu[b]].peer_access;
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

GpuList list_gpus(const MachineGpus& machine, const CudaView& cuda,
                  const std::optional<std::string>& visible_devices) {
  GpuList list;
  list.machine = machine;
  list.cuda_problem = cuda.problem;
  list.visible_devices = visible_devices;
  std::vector<GpuUuids> uuids;
  for (const GpuStatus& gpu : machine.gpus) {
    list.rows.push_back({gpu, {}, GpuRow::Visibility::hidden});
    uuids.push_back({gpu.uuid, gpu.slices});
  }
  const VisibleGpus visible = read_visible_devices(visible_devices, uuids);
  if (cuda.gpus.empty()) {
    for (const std::size_t row : visible.gpus) {
      list.rows[row].visibility = GpuRow::Visibility::visible;
    }
    list.device_rows = visible.gpus;
  } else {
    add_cuda(cuda, list);
  }
  add_hidden_note(list);
  if (machine.problem.empty()) {
    for (const std::string& problem : visible.problems) {
      list.notes.push_back("CUDA_VISIBLE_DEVICES: " + problem);
    }
  }
  return list;
}

GpuList list_gpus() {
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  return list_gpus(read_machine(), read_cuda(),
                   visible ? std::optional<std::string>(visible) : std::nullopt);
}

std::vector<std::size_t> pick_devices(const GpuList& list, std::size_t count) {
  const std::string& problem = list.machine.problem;
  require(problem.empty(), ErrorCode::Device, "--free", "{}", problem);
  require(count <= list.device_rows.size(), ErrorCode::Usage, "--free",
          "asks for {} devices, and there {} {}{}", count,
          list.device_rows.size() == 1 ? "is" : "are", list.device_rows.size(),
          list.notes.empty() ? "" : "; " + list.notes.front());
  for (const std::size_t row : list.device_rows) {
    const GpuStatus& gpu = list.rows[row].status;
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
