#include "tools/devices/nvidia_smi.h"

#include <pwd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "engine/runtime/cpu_use.h"

namespace lockstep::tools {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kTimeLimitSeconds = 10;
constexpr std::size_t kMostAnswerBytes = std::size_t{1} << 20;

constexpr int kCorruptedInfoRom = 14;  // a warning: nvidia-smi has answered all the same

// The lines that nvidia-smi prints, or why there are none.
struct Answer {
  std::vector<std::string> lines;
  std::string problem;
  int exit_code = 0;
  bool is_cut_short = false;  // it did not run to its end
};

Answer ask(const std::string& arguments) {
  Answer answer;
  const std::string command =
      fmt::format("timeout -k 1 {} nvidia-smi {} 2>&1", kTimeLimitSeconds, arguments);
  const auto begin = std::chrono::steady_clock::now();
  std::FILE* pipe = ::popen(command.c_str(), "re");
  if (pipe == nullptr) return {{}, "nvidia-smi cannot be started"};
  std::string text;
  std::array<char, 4096> piece;
  while (const std::size_t size = std::fread(piece.data(), 1, piece.size(), pipe)) {
    if (text.size() < kMostAnswerBytes) text.append(piece.data(), size);
  }
  const int status = ::pclose(pipe);
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) answer.lines.push_back(line);

  const int exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  answer.exit_code = exit_code;
  const bool is_late =
      std::chrono::steady_clock::now() - begin >= std::chrono::seconds(kTimeLimitSeconds);
  answer.is_cut_short = exit_code == 124 || (exit_code == 137 && is_late);
  if (answer.is_cut_short) {
    answer.problem = fmt::format("nvidia-smi did not answer within {} s", kTimeLimitSeconds);
  } else if (exit_code == 127) {
    answer.problem = "no nvidia-smi in PATH (it comes with NVIDIA's driver)";
  } else if (exit_code != 0) {
    answer.problem = answer.lines.empty()
                         ? fmt::format("nvidia-smi ended with exit code {}", exit_code)
                         : fmt::format("nvidia-smi says '{}'", answer.lines.front());
  }
  return answer;
}

std::string trim(const std::string& text) {
  const std::size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

}  // namespace

std::vector<std::string> split_line(const std::string& line, char separator) {
  std::vector<std::string> cells;
  std::istringstream stream(line);
  for (std::string cell; std::getline(stream, cell, separator);) cells.push_back(trim(cell));
  return cells;
}

namespace {

using Cells = std::vector<std::string>;

// The rows of `--query-WHAT=FIELDS`.
struct Table {
  std::vector<Cells> rows;  // with a cell for each field; empty if this driver does not know it
  std::string problem;      // why there are no rows
  std::string warning;      // nvidia-smi ended with an error code, and there are rows
  std::string said;         // its first line that is no row
};

// The field of 'Field "power.draw" is not a valid field to query.'; fields.end() if there is none.
std::vector<std::string>::iterator find_unknown(const Answer& answer,
                                                std::vector<std::string>& fields) {
  return std::ranges::find_if(fields, [&](const std::string& field) {
    return std::ranges::any_of(answer.lines, [&](const std::string& line) {
      const bool is_named = line.find('"' + field + '"') != std::string::npos ||
                            line.find("'" + field + "'") != std::string::npos;
      return is_named && line.find("not a valid field") != std::string::npos;
    });
  });
}

Table query(const std::string& what, const std::vector<std::string>& fields) {
  std::vector<std::string> known = fields;
  Answer answer;
  // Asks again without a field that this driver does not know, down to a last one.
  for (auto unknown = known.end();; known.erase(unknown)) {
    answer = ask(
        fmt::format("--query-{}={} --format=csv,noheader,nounits", what, fmt::join(known, ",")));
    unknown = find_unknown(answer, known);
    if (unknown == known.end() || known.size() == 1) break;
  }
  Table table{{}, answer.problem, {}, {}};
  for (const std::string& line : answer.lines) {
    const Cells cells = split_line(line, ',');
    if (cells.size() != known.size() || known.size() == 1 || answer.is_cut_short) {
      if (table.said.empty()) table.said = trim(line);
      continue;
    }
    Cells& row = table.rows.emplace_back(fields.size());
    for (std::size_t i = 0; i < known.size(); ++i) {
      const auto field = std::ranges::find(fields, known[i]) - fields.begin();
      row[static_cast<std::size_t>(field)] = cells[i];
    }
  }
  const bool has_answered = !table.rows.empty() || answer.exit_code == kCorruptedInfoRom;
  if (answer.exit_code == 0 || !has_answered) return table;
  table.problem.clear();
  table.warning = table.said.empty()
                      ? fmt::format("nvidia-smi ended with exit code {}", answer.exit_code)
                      : fmt::format("nvidia-smi says '{}'", table.said);
  return table;
}

std::optional<double> number_in(const std::string& cell) {
  double number = 0;
  const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), number);
  if (error != std::errc{} || end != cell.data() + cell.size()) return std::nullopt;
  return number >= 0 && number < 2147483648.0 ? std::optional(number) : std::nullopt;
}

enum class Kind { text, number, mib };

// nvidia-smi writes "[N/A]" or "[Not Supported]" for what the GPU or the driver does not tell.
Json value_of(const std::string& cell, Kind kind) {
  if (kind == Kind::text) return cell.empty() || cell.starts_with('[') ? Json() : Json(cell);
  const std::optional<double> number = number_in(cell);
  if (!number) return nullptr;
  return kind == Kind::mib ? Json(static_cast<std::size_t>(*number) << 20) : Json(*number);
}

struct GpuField {
  const char* asked;
  const char* key;
  Kind kind;
};
constexpr GpuField kGpuFields[] = {{"name", "name", Kind::text},
                                   {"uuid", "uuid", Kind::text},
                                   {"pci.bus_id", "pci_bus_id", Kind::text},
                                   {"compute_cap", "compute_capability", Kind::text},
                                   {"memory.used", "memory_used_bytes", Kind::mib},
                                   {"memory.free", "memory_free_bytes", Kind::mib},
                                   {"memory.total", "memory_total_bytes", Kind::mib},
                                   {"utilization.gpu", "utilization_percent", Kind::number},
                                   {"temperature.gpu", "temperature_celsius", Kind::number},
                                   {"power.draw", "power_watts", Kind::number},
                                   {"enforced.power.limit", "power_limit_watts", Kind::number}};

// The processes of each GPU by its UUID: null for a GPU that does not tell. Absent if nvidia-smi
// does not answer.
std::optional<std::map<std::string, Json>> read_processes() {
  const Table table = query("compute-apps", {"gpu_uuid", "pid", "used_memory"});
  if (!table.problem.empty()) return std::nullopt;
  std::map<std::string, Json> processes;
  for (const Cells& cells : table.rows) {
    if (cells[0].empty()) return std::nullopt;
    Json& list = processes[cells[0]];
    const std::optional<double> pid = number_in(cells[1]);
    if (!pid) continue;
    list.push_back({{"pid", static_cast<int>(*pid)},
                    {"user", nullptr},
                    {"command", nullptr},
                    {"memory_bytes", value_of(cells[2], Kind::mib)}});
  }
  return processes;
}

// Replaces control characters, which would confuse a terminal, in text of other programs.
std::string printable(std::string text) {
  while (!text.empty() && text.back() == '\0') text.pop_back();
  for (char& c : text) {
    if (c >= '\0' && c < ' ') c = ' ';
    if (c == '\x7f') c = '?';
  }
  return text;
}

// A process that has ended, or belongs to another PID namespace (outside this container), keeps
// null.
void add_owner(Json& process) {
  const int pid = process["pid"];
  struct stat folder {};
  if (stat(fmt::format("/proc/{}", pid).c_str(), &folder) != 0) return;
  const passwd* user = getpwuid(folder.st_uid);
  process["user"] = user != nullptr ? user->pw_name : std::to_string(folder.st_uid);
  const std::string command = printable(runtime::read_process_file(pid, "cmdline"));
  process["command"] =
      command.empty() ? printable(runtime::read_process_file(pid, "comm")) : command;
}

void add_processes(Json& gpus) {
  const auto processes = read_processes();
  if (!processes) return;
  for (Json& gpu : gpus) {
    if (!gpu["uuid"].is_string()) continue;
    const auto found = processes->find(gpu["uuid"].get<std::string>());
    gpu["processes"] = found == processes->end() ? Json::array() : found->second;
    for (Json& process : gpu["processes"]) add_owner(process);
  }
}

// "GPU 0: NVIDIA A100 (UUID: GPU-...)", and below it a line with "(UUID: MIG-...)" per slice.
void add_slices(Json& gpus) {
  std::size_t num_gpus = 0;
  for (const std::string& line : ask("-L").lines) {
    const std::size_t begin = line.find("MIG-");
    if (line.starts_with("GPU ")) {
      ++num_gpus;
    } else if (begin != std::string::npos && num_gpus > 0 && num_gpus <= gpus.size()) {
      gpus[num_gpus - 1]["slices"].push_back(line.substr(begin, line.find(')', begin) - begin));
    }
  }
}

// A matrix that `nvidia-smi topo` prints: the row of GPU i begins with "GPUi", and a cell per GPU
// follows. Its cells are empty if it has another shape.
std::vector<std::vector<std::string>> read_matrix(const std::string& which, std::size_t num_gpus) {
  std::vector<std::vector<std::string>> matrix(num_gpus, std::vector<std::string>(num_gpus));
  for (const std::string& line : ask("topo " + which).lines) {
    const std::vector<std::string> cells = split_line(line, '\t');
    if (cells.size() <= num_gpus) continue;
    for (std::size_t i = 0; i < num_gpus; ++i) {
      if (cells[0] == fmt::format("GPU{}", i)) {
        matrix[i].assign(cells.begin() + 1, cells.begin() + 1 + static_cast<long>(num_gpus));
      }
    }
  }
  return matrix;
}

// A path such as "NV18" names its number of links.
Json num_links(const std::string& path) {
  const std::optional<double> number = number_in(path.substr(2));
  return number ? Json(static_cast<int>(*number)) : Json();
}

void add_links(std::size_t num_gpus, Json& links) {
  if (num_gpus < 2) return;
  const auto paths = read_matrix("-m", num_gpus);
  const auto reads = read_matrix("-p2p r", num_gpus);
  for (std::size_t a = 0; a < num_gpus; ++a) {
    for (std::size_t b = 0; b < num_gpus; ++b) {
      if (a == b) continue;
      const bool is_nvlink = paths[a][b].starts_with("NV");
      links.push_back({{"from", a},
                       {"to", b},
                       {"nvlinks", is_nvlink ? num_links(paths[a][b]) : Json(0)},
                       {"pcie", is_nvlink ? Json() : value_of(paths[a][b], Kind::text)},
                       {"peer_access", reads[a][b].empty() ? Json() : Json(reads[a][b] == "OK")}});
    }
  }
}

// "NVML version        : 580.65": drivers before 530 do not know --version.
void add_versions(Json& machine) {
  for (const std::string& line : ask("--version").lines) {
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const std::string value = trim(line.substr(colon + 1));
    if (line.starts_with("NVML version")) machine["nvml"] = value;
    if (line.starts_with("CUDA Version")) machine["newest_cuda"] = value;
  }
}

}  // namespace

Json unknown_gpu(std::size_t index) {
  Json gpu{{"gpu", index}, {"devices", Json::array()}, {"visible", false}};
  for (const GpuField& field : kGpuFields) gpu[field.key] = nullptr;
  gpu["processes"] = nullptr;
  return gpu;
}

Json read_nvidia_smi() {
  Json machine{{"driver", nullptr},       {"nvml", nullptr},       {"newest_cuda", nullptr},
               {"nvml_problem", nullptr}, {"gpus", Json::array()}, {"links", Json::array()},
               {"notes", Json::array()}};
  std::vector<std::string> fields{"driver_version"};
  for (const GpuField& field : kGpuFields) fields.emplace_back(field.asked);
  const Table table = query("gpu", fields);
  if (!table.problem.empty()) {
    machine["nvml_problem"] = table.problem;
    return machine;
  }
  Json& gpus = machine["gpus"];
  for (const Cells& cells : table.rows) {
    machine["driver"] = value_of(cells[0], Kind::text);
    Json gpu = unknown_gpu(gpus.size());
    for (std::size_t i = 0; i < std::size(kGpuFields); ++i) {
      gpu[kGpuFields[i].key] = value_of(cells[i + 1], kGpuFields[i].kind);
    }
    gpus.push_back(gpu);
  }
  if (gpus.empty()) {
    machine["nvml_problem"] = fmt::format("nvidia-smi lists no GPU{}",
                                          table.said.empty() ? "" : ": '" + table.said + "'");
    return machine;
  }
  if (!table.warning.empty()) machine["notes"].push_back(table.warning);
  add_processes(gpus);
  add_slices(gpus);
  add_links(gpus.size(), machine["links"]);
  add_versions(machine);
  return machine;
}

namespace {

bool descends_from(int pid, int ancestor) {
  while (pid > 0 && pid != ancestor) pid = runtime::parent_of(pid).value_or(0);
  return pid == ancestor;
}

}  // namespace

bool are_relatives(int a, int b) {
  return descends_from(a, b) || descends_from(b, a);
}

void GpuContentionProbe::sample() {
  const auto now = std::chrono::steady_clock::now();
  const bool is_early = num_samples_ >= 2 && now - last_ < std::chrono::seconds(1);
  if (uuids_.empty() || is_blind_ || is_early) return;
  ++num_samples_;
  last_ = now;
  const auto processes = read_processes();
  is_blind_ = !processes.has_value();
  if (is_blind_) return;
  for (const std::string& uuid : uuids_) {
    Seen& seen = seen_[uuid];
    const auto found = processes->find(uuid);
    if (found == processes->end()) {
      seen.num_last = 0;
      continue;
    }
    is_blind_ = found->second.is_null();
    if (is_blind_) return;
    seen.num_last = found->second.size();
    for (const Json& process : found->second) {
      const int pid = process["pid"];
      if (!seen.pids.insert(pid).second) continue;
      if (!are_relatives(pid, getpid())) strangers_.insert(pid);
    }
  }
}

std::optional<bool> GpuContentionProbe::verdict() const {
  if (uuids_.empty()) return false;
  if (is_blind_ || num_samples_ == 0) return std::nullopt;
  bool knows_numbers = false;  // this process is listed by its own number
  bool alone = true;
  for (const auto& [uuid, seen] : seen_) {
    knows_numbers = knows_numbers || seen.pids.contains(getpid());
    // A single process on a GPU that this process uses must be this process, whatever its number.
    alone = alone && seen.pids.size() == 1 && seen.num_last == 1;
  }
  if (knows_numbers) return !strangers_.empty();
  if (alone) return false;
  return std::nullopt;
}

}  // namespace lockstep::tools
