// The GPUs of this machine as NVIDIA's management library, and so nvidia-smi, shows them.
//
// It lists all GPUs, regardless of CUDA_VISIBLE_DEVICES, in the order of their PCI bus ids, as
// nvidia-smi does. A value that the GPU, the driver or the library does not tell is absent. A
// machine without an NVIDIA driver is a fact to report, not an error.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "engine/runtime/shared_library.h"
#include "tools/nvml/nvml_api.h"

namespace lockstep::nvml {

// One open connection to NVML, from construction to destruction; any number may exist at once.
class Library {
 public:
  // Loads libnvidia-ml.so.1, or the file that LOCKSTEP_NVML_LIBRARY names, and initialises it. If
  // that fails it does not throw: problem() says why.
  Library();
  ~Library();
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  bool available() const { return problem_.empty(); }
  // Why NVML cannot be asked, and what to do about it; or empty.
  const std::string& problem() const { return problem_; }

  // Calls a function of the library; returns kFunctionNotFound if the library is too old to have
  // it.
  // REQUIRES: available(), and arguments of exactly the types that NVML declares.
  template <typename... Args>
  Result call(const char* name, Args... args) const {
    Result (*function)(Args...) = nullptr;
    file_.find(name, function);
    return function != nullptr ? function(args...) : kFunctionNotFound;
  }

  // NVML's own words for a result: "Not Supported".
  std::string describe(Result result) const;

 private:
  runtime::SharedLibrary file_;
  bool is_initialised_ = false;
  std::string problem_;
};

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

struct ComputeCapability {
  int major = 0;
  int minor = 0;
};

struct GpuStatus {
  std::size_t index = 0;   // nvidia-smi's number
  std::string name;        // "NVIDIA H200"
  std::string uuid;        // "GPU-c0ffee00-..."
  std::string pci_bus_id;  // "00000000:3B:00.0"
  std::optional<ComputeCapability> compute_capability;
  std::optional<GpuMemory> memory;
  std::optional<unsigned> utilization_percent;  // time with a kernel running, last sample period
  std::optional<unsigned> temperature_celsius;
  std::optional<double> power_watts;
  std::optional<double> power_limit_watts;
  std::optional<std::vector<GpuProcess>> processes;  // those with a compute context
  std::vector<std::string> slices;                   // UUIDs of its MIG instances: "MIG-1f2a..."
};

// Reads every GPU. REQUIRES: library.available(). Throws Error{Device} if GPUs cannot be listed, or
// one does not answer.
std::vector<GpuStatus> read_gpus(const Library& library);

struct DriverVersions {
  std::string driver;       // "580.65.06"; empty if unknown
  std::string nvml;         // "13.580.65.06"
  std::string newest_cuda;  // the newest CUDA runtime that the driver serves: "13.0"
};
DriverVersions read_versions(const Library& library);

// The path from one GPU to another.
struct GpuLink {
  std::size_t num_nvlinks = 0;      // bonded, directly or through switches
  std::string pcie_path;            // "PIX", "PXB", "PHB", "NODE", "SYS"; empty if unknown
  std::optional<bool> peer_access;  // true if it can read the other's memory itself

  // "NV18" if there are NVLinks, else the PCIe path, else "-".
  std::string path() const;
};

// "one PCIe switch" for "PIX"; empty for words that are not paths.
std::string explain_path(const std::string& path);

// links[a][b] for the GPUs of read_gpus; links[a][a] has no meaning.
// NVLinks to a switch count towards every other GPU with links to switches, the smaller number of
// both: NVSwitches join all GPUs of a machine. Links with an unknown other end do not count.
std::vector<std::vector<GpuLink>> read_links(const Library& library,
                                             const std::vector<GpuStatus>& gpus);

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
// still has its context there, and any number between, but not while something is timed: each asks
// the driver once per GPU, without work for the GPU.
//
// A process that comes and goes between two samples is not seen.
class ContentionProbe {
 public:
  // The GPUs by UUID. Without any, nothing is watched and verdict() is false.
  explicit ContentionProbe(std::vector<std::string> uuids);

  void sample();

  // true:   a process other than this one, its ancestors and descendants had a compute context on
  //         one of the GPUs.
  // false:  there was none.
  // absent: NVML cannot tell: it is missing, does not list processes, or lists them by numbers of
  //         another PID namespace, so that this process is not among them (a container).
  std::optional<bool> verdict() const;

 private:
  // The processes seen on one GPU, over all samples.
  struct Seen {
    std::set<int> pids;
    std::set<int> strangers;   // those of them that do not belong to this process's job
    std::size_t num_last = 0;  // processes of the last sample
  };

  std::vector<std::string> uuids_;
  std::unique_ptr<Library> library_;  // absent if nothing is watched
  std::map<std::string, Seen> seen_;
  bool is_blind_ = false;  // a sample failed
};

}  // namespace lockstep::nvml
