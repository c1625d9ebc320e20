// One rank's trace of torch.profiler, reduced to who worked when: what the breakdown needs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/torch_trace/intervals.h"

namespace lockstep::tools {

// A GPU kernel, or on the CPU an operator that computes.
struct Work : Interval {
  std::uint32_t name = 0;         // index of RankTrace::names
  std::uint32_t correlation = 0;  // of a kernel's launch; 0: unknown
};

struct Collective {
  Interval time;
  std::string kind;      // "all_reduce", "all_gather", "reduce_scatter", ...
  double num_bytes = 0;  // of the whole message, as NCCL's tests count; 0: the file doesn't say
  double element_bytes = 0;
  std::size_t num_ranks = 1;
  std::uint32_t correlation = 0;  // of a kernel's launch
};

struct TorchStep {
  std::size_t number = 0;  // N of ProfilerStep#N
  Interval time;
};

// Times are seconds of the clock that the file uses.
struct RankTrace {
  std::string path;
  std::size_t rank = 0;
  bool says_rank = false;  // false without torch.distributed
  std::size_t world_size = 1;
  std::string backend;  // "nccl", "gloo"; may be empty
  std::string gpu;      // its name, "GPU" if unknown; empty for a trace without kernels
  std::size_t num_events = 0;

  // By number, each ending where the next begins. On a GPU, which runs behind its host, a step
  // begins with the first kernel that was launched in it.
  std::vector<TorchStep> steps;
  std::vector<Work> computation;        // by begin
  std::vector<Collective> collectives;  // by begin
  Intervals copies;                     // between host and GPU, or on the GPU; memsets
  Intervals loader;                     // the training thread waits for the DataLoader, or runs it
  Intervals host;  // threads other than communication's run operators or calls into CUDA
  std::vector<std::string> names;
  bool uses_ddp = false;
  bool uses_fsdp = false;

  bool has_gpu() const { return !gpu.empty(); }
};

// Throws what read_trace_events() throws, and Error{Io} for a trace without steps.
RankTrace read_rank_trace(const std::string& path);

// "all_reduce" for "allreduce", "gloo:all_reduce" and "ncclDevKernel_AllReduce_Sum_f32_RING_LL".
std::string collective_kind(std::string_view name);

// Bytes of one element of PyTorch's type, such as "Float", "c10::BFloat16"; 0 if unknown.
double dtype_bytes(std::string_view dtype);

// True for an operator whose time is computation: "aten::mm", but not the wrappers of the backward
// pass nor calls to torch.distributed, in which a thread may wait.
bool is_computing_operator(std::string_view name);

}  // namespace lockstep::tools
