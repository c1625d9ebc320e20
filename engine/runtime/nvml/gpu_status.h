// GPUs as NVML shows them, the processes on them, and who else used them during a measurement.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "engine/runtime/nvml/nvml_library.h"

namespace lockstep::nvml {

// Processes of this machine, as /proc shows them.

// Who a process belongs to and what it runs.
struct ProcessOwner {
  std::string user;     // "alice"; the number where it has no name
  std::string command;  // "python train.py"
};

// Absent when the process ended, or belongs to another PID namespace (outside this container).
std::optional<ProcessOwner> find_owner(int pid);

// The process that started pid; absent as above, and for the first process.
std::optional<int> parent_of(int pid);

// Whether both belong to one job as far as the kernel can tell: the same process, or one descends
// from the other. A launcher and its ranks are relatives; two ranks are not.
bool are_relatives(int a, int b);

// What NVML says about the GPUs of this machine at one instant, as plain values.
//
// All of them, whatever CUDA_VISIBLE_DEVICES says, in the order of their PCI bus ids, which is how
// nvidia-smi counts. A value that the GPU, the driver or the library does not tell is absent.
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
};

// Every GPU. REQUIRES: library.available(). Throws Error{Device} when GPUs cannot be listed.
std::vector<GpuStatus> read_gpus(const Library& library);

// The processes with a compute context on a GPU; absent when NVML does not tell.
std::optional<std::vector<GpuProcess>> read_processes(const Library& library, DeviceHandle gpu);

// The GPU behind a number of read_gpus. Throws Error{Device}.
DeviceHandle gpu_handle(const Library& library, std::size_t index);

struct DriverVersions {
  std::string driver;       // "580.65.06"; empty when not told
  std::string nvml;         // "13.580.65.06"
  std::string newest_cuda;  // the newest CUDA runtime that the driver serves: "13.0"
};
DriverVersions read_versions(const Library& library);

// Whether somebody else used the GPUs while something was measured on them.

// Watches GPUs during one measurement. Take a sample before it, one after it while this process
// still has its context there, and any number between, outside of what is timed: each asks the
// driver once per GPU and gives the GPU nothing to do.
//
// A process that comes and goes between two samples is not seen.
class ContentionProbe {
 public:
  // The GPUs by UUID. None: nothing is watched, and verdict() is false.
  explicit ContentionProbe(std::vector<std::string> uuids);

  void sample();

  // true:   a process other than this one, its ancestors and descendants had a compute context on
  //         one of the GPUs.
  // false:  none had.
  // absent: NVML cannot tell: it is not there, does not list processes, or lists them by numbers of
  //         another PID namespace, so that this process is not among them (a container).
  std::optional<bool> verdict() const;

 private:
  // What was seen on one GPU, over all samples.
  struct Seen {
    std::set<int> pids;
    std::set<int> strangers;   // of them, those that are not of this process's job
    std::size_t num_last = 0;  // processes of the last sample
  };

  std::vector<std::string> uuids_;
  std::unique_ptr<Library> library_;  // only where something is watched
  std::map<std::string, Seen> seen_;
  bool is_blind_ = false;  // a sample failed
};

}  // namespace lockstep::nvml
