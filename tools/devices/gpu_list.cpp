#include "tools/devices/gpu_list.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <strings.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <set>
#include <string_view>

#include "engine/core/error.h"
#include "engine/runtime/logical_device.h"
#include "tools/devices/nvidia_smi.h"
#include "tools/text/format.h"

namespace lockstep::tools {
namespace {

using Json = nlohmann::ordered_json;

std::string text_or(const Json& value, const char* missing) {
  return value.is_string() ? value.get<std::string>() : missing;
}

bool is_slice(std::string_view entry) {
  return entry.starts_with("MIG-");
}

bool names(std::string_view entry, const Json& gpu, std::size_t number) {
  const std::string uuid = text_or(gpu["uuid"], "");
  if (entry.starts_with("GPU-")) return uuid.starts_with(entry);
  if (is_slice(entry)) {
    const Json slices = gpu.value("slices", Json::array());
    return entry.starts_with("MIG-" + uuid + "/") ||
           std::ranges::any_of(slices, [&](const Json& slice) {
             return slice.get<std::string>().starts_with(entry);
           });
  }
  // CUDA reads as many digits as there are, so that "1x" is 1.
  std::size_t found = 0;
  const auto [end, error] = std::from_chars(entry.data(), entry.data() + entry.size(), found);
  return error == std::errc{} && found == number;
}

}  // namespace

VisibleGpus read_visible_devices(const std::optional<std::string>& text, const Json& gpus) {
  VisibleGpus visible;
  if (!text) {
    visible.gpus.resize(gpus.size());
    std::iota(visible.gpus.begin(), visible.gpus.end(), std::size_t{0});
    return visible;
  }
  for (const std::string& entry : split_line(*text, ',')) {
    std::vector<std::size_t> named;
    for (std::size_t i = 0; i < gpus.size(); ++i) {
      if (names(entry, gpus[i], i)) named.push_back(i);
    }
    if (named.size() != 1) {
      visible.problem = fmt::format(
          "{} '{}': CUDA ignores it and what follows",
          named.empty() ? "there is no GPU" : "several GPUs have UUIDs that begin with", entry);
      return visible;
    }
    if (is_slice(entry)) {
      visible.problem = fmt::format(
          "'{}' is a slice of GPU {}: a program sees only this slice, and the table "
          "shows the whole GPU",
          entry, named[0]);
      if (visible.gpus.empty()) {
        visible.gpus = named;
        visible.is_slice = true;
      }
      return visible;
    }
    if (std::ranges::find(visible.gpus, named[0]) != visible.gpus.end()) {
      return {{}, fmt::format("GPU {} is listed twice, so CUDA shows none", named[0])};
    }
    visible.gpus.push_back(named[0]);
  }
  return visible;
}

namespace {

// "00000000:3B:00.0" (nvidia-smi) and "0000:3b:00.0" (CUDA) are the same.
bool is_same_bus_id(const std::string& longer, const std::string& shorter) {
  return !shorter.empty() && longer.size() >= shorter.size() &&
         strcasecmp(longer.c_str() + longer.size() - shorter.size(), shorter.c_str()) == 0;
}

// The number of rows if none is this GPU.
std::size_t find_row(const Json& rows, const runtime::PhysicalGpu& gpu) {
  const auto found = std::ranges::find_if(rows, [&](const Json& row) {
    return (!gpu.uuid.empty() && row["uuid"] == gpu.uuid) ||
           is_same_bus_id(text_or(row["pci_bus_id"], ""), gpu.pci_bus_id);
  });
  return static_cast<std::size_t>(found - rows.begin());
}

// CUDA's facts about a GPU that nvidia-smi does not list.
Json row_of(const runtime::PhysicalGpu& gpu, std::size_t index) {
  Json row = unknown_gpu(index);
  row["name"] = gpu.name;
  row["uuid"] = gpu.uuid;
  row["pci_bus_id"] = gpu.pci_bus_id;
  row["compute_capability"] = fmt::format("{}.{}", gpu.major, gpu.minor);
  return row;
}

void add_cuda(const CudaView& cuda, GpuList& list) {
  Json& rows = list.json["gpus"];
  std::vector<std::size_t> row_of_gpu;
  for (const runtime::PhysicalGpu& gpu : cuda.gpus) {
    const std::size_t row = find_row(rows, gpu);
    if (row == rows.size()) rows.push_back(row_of(gpu, row));
    rows[row]["visible"] = true;
    row_of_gpu.push_back(row);
  }
  for (std::size_t id = 0; id < cuda.logical_gpus.size(); ++id) {
    list.device_rows.push_back(row_of_gpu[static_cast<std::size_t>(cuda.logical_gpus[id])]);
    rows[list.device_rows.back()]["devices"].push_back(fmt::format("cuda:{}", id));
  }
}

void add_hidden_note(Json& list) {
  std::vector<std::string> hidden;
  for (const Json& row : list["gpus"]) {
    if (!row["visible"]) hidden.push_back(fmt::format("GPU {}", row["gpu"].dump()));
  }
  if (hidden.empty()) return;
  const Json& variable = list["cuda_visible_devices"];
  list["notes"].push_back(fmt::format(
      "{}: {}",
      variable.is_null() ? "not seen by CUDA"
                         : "hidden by CUDA_VISIBLE_DEVICES=" + variable.get<std::string>(),
      fmt::join(hidden, ", ")));
}

Json or_null(const std::string& text) {
  return text.empty() ? Json() : Json(text);
}

}  // namespace

GpuList list_gpus(const Json& machine, const CudaView& cuda,
                  const std::optional<std::string>& visible_devices) {
  GpuList list{machine, {}};
  const Json warnings = machine.value("notes", Json::array());
  list.json["cuda_problem"] = or_null(cuda.problem);
  list.json["cuda_visible_devices"] = visible_devices ? Json(*visible_devices) : Json();
  list.json["notes"] = Json::array();
  const VisibleGpus visible = read_visible_devices(visible_devices, machine["gpus"]);
  list.is_slice = visible.is_slice;
  if (cuda.gpus.empty()) {
    for (const std::size_t row : visible.gpus) list.json["gpus"][row]["visible"] = true;
    list.device_rows = visible.gpus;
  } else {
    add_cuda(cuda, list);
  }
  add_hidden_note(list.json);
  if (machine["nvml_problem"].is_null() && !visible.problem.empty()) {
    list.json["notes"].push_back("CUDA_VISIBLE_DEVICES: " + visible.problem);
  }
  for (const Json& warning : warnings) list.json["notes"].push_back(warning);
  return list;
}

GpuList list_gpus() {
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  return list_gpus(read_nvidia_smi(),
                   {runtime::physical_gpus(), runtime::no_gpu_reason(), runtime::logical_gpus()},
                   visible ? std::optional<std::string>(visible) : std::nullopt);
}

namespace {

constexpr std::size_t kMostIdleBytes = std::size_t{512} << 20;  // a desktop's windows need some
constexpr double kMostIdlePercent = 5;

// Empty for an idle GPU. A figure that it does not tell is not held against it.
std::string why_busy(const Json& gpu) {
  const std::size_t num_processes = gpu["processes"].size();  // 0 of null
  const Json& used = gpu["memory_used_bytes"];
  const Json& utilization = gpu["utilization_percent"];
  if (num_processes > 0) {
    return fmt::format("is used by {} process{}", num_processes, num_processes == 1 ? "" : "es");
  }
  if (!used.is_null() && used.get<std::size_t>() > kMostIdleBytes) {
    return fmt::format("has {} MiB in use", used.get<std::size_t>() >> 20);
  }
  if (!utilization.is_null() && utilization.get<double>() > kMostIdlePercent) {
    return fmt::format("is {:.0f} % utilised", utilization.get<double>());
  }
  return "";
}

}  // namespace

std::vector<std::string> idle_gpus(const GpuList& list, std::size_t count) {
  const Json& problem = list.json["nvml_problem"];
  require(problem.is_null(), ErrorCode::Device, "--free", "cannot tell which GPUs are idle: {}",
          text_or(problem, ""));
  std::vector<Json> idle;
  std::vector<std::string> reasons;
  for (const Json& gpu : list.json["gpus"]) {
    if (list.is_slice || !gpu["visible"] || gpu["uuid"].is_null()) continue;
    const std::string reason = why_busy(gpu);
    if (reason.empty()) idle.push_back(gpu);
    if (!reason.empty()) reasons.push_back(fmt::format("GPU {} {}", gpu["gpu"].dump(), reason));
  }
  for (const Json& note : list.json["notes"]) reasons.push_back(note);
  require(count <= idle.size(), ErrorCode::Device, "--free", "asks for {}, and there {} {}{}{}",
          count_text(count, "idle GPU"), idle.size() == 1 ? "is" : "are", idle.size(),
          reasons.empty() ? "" : ": ", fmt::join(reasons, "; "));
  std::ranges::stable_sort(idle, std::greater<>(), [](const Json& gpu) {
    const Json& bytes = gpu["memory_free_bytes"];
    return bytes.is_null() ? 0 : bytes.get<std::size_t>();
  });
  std::vector<std::string> uuids;
  for (std::size_t i = 0; i < count; ++i) uuids.push_back(idle[i]["uuid"]);
  return uuids;
}

// --- the table ---

namespace {

using Rows = std::vector<std::vector<std::string>>;

// Lines without trailing spaces, whose columns are as wide as their widest cell, cut where the
// terminal ends. aligned: a letter per column, l or r.
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
    line.resize(std::min(line.find_last_not_of(' ') + 1, kTerminalColumns));
    text += line + "\n";
  }
  return text;
}

std::string mib(const Json& bytes) {
  return bytes.is_null() ? "-" : std::to_string(bytes.get<std::size_t>() >> 20);
}

std::string with_unit(const Json& value, const char* unit) {
  return value.is_null() ? "-" : fmt::format("{:.0f} {}", value.get<double>(), unit);
}

std::string power(const Json& gpu) {
  const std::string limit = with_unit(gpu["power_limit_watts"], "W");
  if (gpu["power_watts"].is_null() || limit == "-") return with_unit(gpu["power_watts"], "W");
  return fmt::format("{:.0f} / {}", gpu["power_watts"].get<double>(), limit);
}

// "cuda:3", "cuda:0,2"; "hidden", or "-" if this program uses no GPU.
std::string device_names(const Json& gpu) {
  if (!gpu["visible"]) return "hidden";
  std::string names;
  for (const Json& device : gpu["devices"]) {
    const std::string name = device;
    names += names.empty() ? name : "," + name.substr(name.find(':') + 1);
  }
  return names.empty() ? "-" : names;
}

std::string gpus_text(const Json& gpus) {
  Rows names{{"GPU", "device", "name", "compute", "total MiB"}};
  Rows states{{"GPU", "used MiB", "free MiB", "util", "temp", "power"}};
  for (const Json& gpu : gpus) {
    names.push_back({gpu["gpu"].dump(), device_names(gpu), text_or(gpu["name"], "-"),
                     text_or(gpu["compute_capability"], "-"), mib(gpu["memory_total_bytes"])});
    states.push_back({gpu["gpu"].dump(), mib(gpu["memory_used_bytes"]),
                      mib(gpu["memory_free_bytes"]), with_unit(gpu["utilization_percent"], "%"),
                      with_unit(gpu["temperature_celsius"], "C"), power(gpu)});
  }
  return text_table("rllrr", names) + "\n" + text_table("rrrrrr", states);
}

std::string processes_text(const Json& gpus) {
  Rows table{{"GPU", "pid", "user", "used MiB", "process"}};
  std::vector<std::string> silent;
  for (const Json& gpu : gpus) {
    if (gpu["processes"].is_null()) silent.push_back(gpu["gpu"].dump());
    for (const Json& process : gpu["processes"]) {
      table.push_back({gpu["gpu"].dump(), process["pid"].dump(), text_or(process["user"], "-"),
                       mib(process["memory_bytes"]),
                       text_or(process["command"], "(not seen from here)")});
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

// The rows, in tables that fit into the terminal: with eight GPUs' columns in each.
std::string matrix_text(const Rows& rows) {
  constexpr std::size_t kColumns = 8;
  std::string text;
  for (std::size_t first = 1; first < rows.size(); first += kColumns) {
    const std::size_t end = std::min(first + kColumns, rows.size());
    Rows part;
    for (const std::vector<std::string>& row : rows) {
      part.push_back({row[0]});
      for (std::size_t i = first; i < end; ++i) part.back().push_back(row[i]);
    }
    text += text_table(std::string(end - first + 1, 'l'), part);
  }
  return text;
}

std::string links_text(const Json& links, std::size_t num_gpus) {
  Rows table(num_gpus + 1, std::vector<std::string>(num_gpus + 1, "-"));
  table[0][0] = "";
  for (std::size_t i = 1; i <= num_gpus; ++i) {
    table[0][i] = table[i][0] = fmt::format("GPU {}", i - 1);
    table[i][i] = "X";
  }
  std::set<std::string> paths;
  bool any_unknown = false;
  for (const Json& link : links) {
    const std::size_t nvlinks = link["nvlinks"];
    const std::string path =
        nvlinks > 0 ? fmt::format("NV{}", nvlinks) : text_or(link["pcie"], "-");
    paths.insert(nvlinks > 0 ? "NV#" : path);
    const Json& access = link["peer_access"];
    any_unknown = any_unknown || access.is_null();
    table[link["from"].get<std::size_t>() + 1][link["to"].get<std::size_t>() + 1] =
        path + (access.is_null() ? " ?"
                : access         ? " *"
                                 : "");
  }
  std::string text = matrix_text(table);
  for (const auto& [path, meaning] : kPaths) {
    if (paths.contains(path)) text += fmt::format("{:<5} {}\n", path, meaning);
  }
  text += "*     the row's GPU reads the column's memory itself, not through the host\n";
  if (any_unknown) text += "?     unknown whether it does\n";
  return text;
}

}  // namespace

std::string gpu_table(const Json& list) {
  const Json& gpus = list["gpus"];
  std::string text;
  if (!gpus.empty()) text = fmt::format("{}\n{}", gpus_text(gpus), processes_text(gpus));
  if (!list["links"].empty()) text += "\n" + links_text(list["links"], gpus.size());
  if (!list["notes"].empty() && !text.empty()) text += '\n';
  for (const Json& note : list["notes"]) text += wrap(note.get<std::string>()) + "\n";
  return text;
}

}  // namespace lockstep::tools
