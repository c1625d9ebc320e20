// The GPUs of this machine as nvidia-smi shows them, and whether other jobs use them.
//
// nvidia-smi comes with NVIDIA's driver. It lists all GPUs, regardless of CUDA_VISIBLE_DEVICES, in
// the order of their PCI bus ids. A value that it does not tell is absent. A machine without it is
// a fact to report, not an error.
#pragma once

#include <chrono>
#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace lockstep::tools {

struct GpuProcess {
  int pid = 0;
  std::optional<std::size_t> memory_bytes;

  bool operator==(const GpuProcess&) const = default;
};

struct GpuMemory {
  std::size_t total_bytes = 0;
  std::size_t used_bytes = 0;  // by programs; what the driver reserves is neither used nor free
  std::size_t free_bytes = 0;
};

struct GpuStatus {
  std::size_t index = 0;           // nvidia-smi's number
  std::string name;                // "NVIDIA H200"
  std::string uuid;                // "GPU-c0ffee00-..."
  std::string pci_bus_id;          // "00000000:3B:00.0"
  std::string compute_capability;  // "9.0"
  std::optional<GpuMemory> memory;
  std::optional<double> utilization_percent;  // time with a kernel running, last sample period
  std::optional<double> temperature_celsius;
  std::optional<double> power_watts;
  std::optional<double> power_limit_watts;
  std::optional<std::vector<GpuProcess>> processes;  // those with a compute context
  std::vector<std::string> slices;                   // UUIDs of its MIG instances: "MIG-1f2a..."
};

// The way from one GPU to another.
struct GpuLink {
  std::string path;                 // "NV18", "PIX", "PXB", "PHB", "NODE", "SYS"; empty if unknown
  std::optional<bool> peer_access;  // true if it can read the other's memory itself
};

struct MachineGpus {
  std::string problem;  // why nvidia-smi tells nothing, or empty
  std::vector<GpuStatus> gpus;
  std::vector<std::vector<GpuLink>> links;  // [from][to]; links[a][a] has no meaning
  std::string driver;                       // "580.65.06"
  std::string nvml;                         // the library behind nvidia-smi: "580.65"
  std::string newest_cuda;  // the newest CUDA runtime that the driver serves: "13.0"
};

// Asks nvidia-smi, for at most 10 s at a time.
MachineGpus read_machine();

// The parts of the line between separators, without spaces around them.
std::vector<std::string> split_line(const std::string& line, char separator);

// A process's user and command.
struct ProcessOwner {
  std::string user;     // "alice"; the number if it has no name
  std::string command;  // "python train.py"
};

// Absent if the process has ended, or belongs to another PID namespace (outside this container).
std::optional<ProcessOwner> find_owner(int pid);

// True if the kernel shows that both belong to one job: the same process, or one descends from the
// other. A launcher and its ranks are relatives; two ranks are not.
bool are_relatives(int a, int b);

// Watches GPUs during one measurement. Take a sample before it, one after it while this process
// still has its context there, and any number between, but not while something is timed: a sample
// asks nvidia-smi, from the third on at most once a second.
//
// A process that comes and goes between two samples is not seen.
class GpuContentionProbe {
 public:
  // The GPUs by UUID. Without any, nothing is watched and verdict() is false.
  explicit GpuContentionProbe(std::vector<std::string> uuids) : uuids_(std::move(uuids)) {}

  void sample();

  // true:   a process other than this one, its ancestors and descendants had a compute context on
  //         one of the GPUs.
  // false:  there was none.
  // absent: nvidia-smi cannot tell: it is missing, does not list processes, or lists them by
  //         numbers of another PID namespace, so that this process is not among them (a container).
  std::optional<bool> verdict() const;

 private:
  // The processes seen on one GPU, over all samples.
  struct Seen {
    std::set<int> pids;
    std::size_t num_last = 0;  // processes of the last sample
  };

  std::vector<std::string> uuids_;
  std::map<std::string, Seen> seen_;
  std::set<int> strangers_;  // processes that do not belong to this process's job
  std::size_t num_samples_ = 0;
  std::chrono::steady_clock::time_point last_;
  bool is_blind_ = false;  // a sample failed
};

}  // namespace lockstep::tools
