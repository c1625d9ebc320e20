// The GPUs of this machine as nvidia-smi shows them, and whether other jobs use them.
//
// nvidia-smi comes with NVIDIA's driver. It lists all GPUs, regardless of CUDA_VISIBLE_DEVICES, in
// the order of their PCI bus ids. A machine without it is a fact to report, not an error.
#pragma once

#include <chrono>
#include <cstddef>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace lockstep::tools {

// Asks nvidia-smi, for at most 10 s at a time. Returns "driver", "nvml", "newest_cuda",
// "nvml_problem" (why it says nothing), "gpus", "links" and "notes" (its warning, if it ended with
// an error code and listed GPUs) as `lockstep devices --json` writes them (docs/formats.md): a
// value that nvidia-smi does not give is null. "devices" are empty and "visible" is false.
nlohmann::ordered_json read_nvidia_smi();

// An element of "gpus" of which nothing is known.
nlohmann::ordered_json unknown_gpu(std::size_t index);

// The parts of the line between separators, without spaces around them.
std::vector<std::string> split_line(const std::string& line, char separator);

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
