#include "tools/devices/nvidia_smi.h"

#include <pwd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <sstream>

#include <fmt/format.h>

#include "engine/runtime/cpu_cores.h"

namespace lockstep::tools {
namespace {

constexpr int kTimeLimitSeconds = 10;
constexpr std::size_t kMostAnswerBytes = std::size_t{1} << 20;

// The lines that nvidia-smi prints, or why there are none.
struct Answer {
  std::vector<std::string> lines;
  std::string problem;
};

Answer ask(const std::string& arguments) {
  Answer answer;
  const std::string command =
      fmt::format("timeout {} nvidia-smi {} 2>&1", kTimeLimitSeconds, arguments);
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
  if (exit_code == 124) {
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

// Rows of `--query-WHAT=FIELDS` with that many cells.
std::vector<std::vector<std::string>> rows_of(const Answer& answer, std::size_t num_cells) {
  std::vector<std::vector<std::string>> rows;
  for (const std::string& line : answer.lines) {
    std::vector<std::string> cells = split_line(line, ',');
    if (cells.size() == num_cells) rows.push_back(std::move(cells));
  }
  return rows;
}

Answer query(const std::string& what, const std::string& fields) {
  return ask(fmt::format("--query-{}={} --format=csv,noheader,nounits", what, fields));
}

// nvidia-smi writes "[N/A]" or "[Not Supported]" for what the GPU or the driver does not tell.
std::string text_in(const std::string& cell) {
  return cell.starts_with('[') ? "" : cell;
}

std::optional<double> number_in(const std::string& cell) {
  double number = 0;
  const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), number);
  if (error != std::errc{} || end != cell.data() + cell.size()) return std::nullopt;
  return number;
}

std::optional<std::size_t> bytes_in(const std::string& cell_in_mib) {
  const std::optional<double> mib = number_in(cell_in_mib);
  if (!mib) return std::nullopt;
  return static_cast<std::size_t>(*mib) << 20;
}

constexpr const char* kGpuFields =
    "index,name,uuid,pci.bus_id,compute_cap,memory.total,memory.used,memory.free,utilization.gpu,"
    "temperature.gpu,power.draw,enforced.power.limit,driver_version";
constexpr std::size_t kNumGpuFields = 13;

GpuStatus gpu_in(const std::vector<std::string>& cells) {
  GpuStatus gpu;
  gpu.index = static_cast<std::size_t>(number_in(cells[0]).value_or(0));
  gpu.name = text_in(cells[1]);
  gpu.uuid = text_in(cells[2]);
  gpu.pci_bus_id = text_in(cells[3]);
  gpu.compute_capability = text_in(cells[4]);
  const auto total = bytes_in(cells[5]);
  const auto used = bytes_in(cells[6]);
  const auto free = bytes_in(cells[7]);
  if (total && used && free) gpu.memory = GpuMemory{*total, *used, *free};
  gpu.utilization_percent = number_in(cells[8]);
  gpu.temperature_celsius = number_in(cells[9]);
  gpu.power_watts = number_in(cells[10]);
  gpu.power_limit_watts = number_in(cells[11]);
  return gpu;
}

// The processes of each GPU, by its UUID; no list for a GPU that does not tell. Absent if
// nvidia-smi does not answer.
using Processes = std::map<std::string, std::optional<std::vector<GpuProcess>>>;

std::optional<Processes> read_processes() {
  const Answer answer = query("compute-apps", "gpu_uuid,pid,used_memory");
  if (!answer.problem.empty()) return std::nullopt;
  Processes processes;
  for (const std::vector<std::string>& cells : rows_of(answer, 3)) {
    const std::optional<double> pid = number_in(cells[1]);
    std::optional<std::vector<GpuProcess>>& list = processes[cells[0]];
    if (!pid) continue;
    if (!list) list.emplace();
    list->push_back({static_cast<int>(*pid), bytes_in(cells[2])});
  }
  return processes;
}

void add_processes(std::vector<GpuStatus>& gpus) {
  const std::optional<Processes> processes = read_processes();
  if (!processes) return;
  for (GpuStatus& gpu : gpus) {
    const auto found = processes->find(gpu.uuid);
    gpu.processes = found == processes->end() ? std::vector<GpuProcess>() : found->second;
  }
}

// "GPU 0: NVIDIA A100 (UUID: GPU-...)", and below it a line with "(UUID: MIG-...)" per slice.
void add_slices(std::vector<GpuStatus>& gpus) {
  std::size_t num_gpus = 0;
  for (const std::string& line : ask("-L").lines) {
    const std::size_t begin = line.find("MIG-");
    if (line.starts_with("GPU ")) {
      ++num_gpus;
    } else if (begin != std::string::npos && num_gpus > 0 && num_gpus <= gpus.size()) {
      gpus[num_gpus - 1].slices.push_back(line.substr(begin, line.find(')', begin) - begin));
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

std::vector<std::vector<GpuLink>> read_links(std::size_t num_gpus) {
  std::vector<std::vector<GpuLink>> links(num_gpus, std::vector<GpuLink>(num_gpus));
  if (num_gpus < 2) return links;
  const auto paths = read_matrix("-m", num_gpus);
  const auto reads = read_matrix("-p2p r", num_gpus);
  for (std::size_t a = 0; a < num_gpus; ++a) {
    for (std::size_t b = 0; b < num_gpus; ++b) {
      if (a == b) continue;
      links[a][b].path = paths[a][b];
      if (!reads[a][b].empty()) links[a][b].peer_access = reads[a][b] == "OK";
    }
  }
  return links;
}

// "NVML version        : 580.65": drivers before 530 do not know --version.
void read_versions(MachineGpus& machine) {
  for (const std::string& line : ask("--version").lines) {
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const std::string value = trim(line.substr(colon + 1));
    if (line.starts_with("NVML version")) machine.nvml = value;
    if (line.starts_with("CUDA Version")) machine.newest_cuda = value;
  }
}

}  // namespace

MachineGpus read_machine() {
  MachineGpus machine;
  const Answer answer = query("gpu", kGpuFields);
  machine.problem = answer.problem;
  if (!machine.problem.empty()) return machine;
  for (const std::vector<std::string>& cells : rows_of(answer, kNumGpuFields)) {
    machine.gpus.push_back(gpu_in(cells));
    machine.driver = text_in(cells.back());
  }
  if (machine.gpus.empty()) {
    machine.problem = fmt::format("nvidia-smi lists no GPU{}",
                                  answer.lines.empty() ? "" : ": '" + answer.lines[0] + "'");
    return machine;
  }
  add_processes(machine.gpus);
  add_slices(machine.gpus);
  machine.links = read_links(machine.gpus.size());
  read_versions(machine);
  return machine;
}

// --- this machine's processes, from /proc ---

namespace {

std::string user_name(uid_t user) {
  const passwd* entry = getpwuid(user);
  return entry != nullptr ? entry->pw_name : std::to_string(user);
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

bool descends_from(int pid, int ancestor) {
  while (pid > 0 && pid != ancestor) pid = runtime::parent_of(pid).value_or(0);
  return pid == ancestor;
}

}  // namespace

std::optional<ProcessOwner> find_owner(int pid) {
  struct stat folder {};
  if (stat(fmt::format("/proc/{}", pid).c_str(), &folder) != 0) return std::nullopt;
  std::string command = printable(runtime::read_process_file(pid, "cmdline"));
  if (command.empty()) command = printable(runtime::read_process_file(pid, "comm"));
  return ProcessOwner{user_name(folder.st_uid), command};
}

bool are_relatives(int a, int b) {
  return descends_from(a, b) || descends_from(b, a);
}

// --- did another job use the GPUs? ---

void GpuContentionProbe::sample() {
  const auto now = std::chrono::steady_clock::now();
  const bool is_early = num_samples_ >= 2 && now - last_ < std::chrono::seconds(1);
  if (uuids_.empty() || is_blind_ || is_early) return;
  ++num_samples_;
  last_ = now;
  const std::optional<Processes> processes = read_processes();
  is_blind_ = !processes.has_value();
  if (is_blind_) return;
  for (const std::string& uuid : uuids_) {
    Seen& seen = seen_[uuid];
    const auto found = processes->find(uuid);
    if (found == processes->end()) {
      seen.num_last = 0;
      continue;
    }
    is_blind_ = is_blind_ || !found->second;
    if (is_blind_) return;
    seen.num_last = found->second->size();
    for (const GpuProcess& process : *found->second) {
      if (!seen.pids.insert(process.pid).second) continue;
      if (!are_relatives(process.pid, getpid())) strangers_.insert(process.pid);
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
