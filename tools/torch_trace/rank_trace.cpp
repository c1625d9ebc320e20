#include "tools/torch_trace/rank_trace.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>

#include "engine/core/error.h"
#include "engine/core/text.h"
#include "tools/torch_trace/trace_events.h"

namespace lockstep::tools {
namespace {

bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

Interval time_of(const TraceEvent& event) {
  return {event.begin, event.begin + event.seconds};
}

// Sorts, and leaves out work that lies inside of other work, as operators do that others call.
void keep_outermost(std::vector<Work>& work) {
  std::ranges::sort(work, [](const Work& a, const Work& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end > b.end;
  });
  std::size_t kept = 0;
  for (const Work& next : work) {
    if (next.end <= next.begin) continue;
    if (kept > 0 && next.begin < work[kept - 1].end) {
      work[kept - 1].end = std::max(work[kept - 1].end, next.end);
    } else {
      work[kept++] = next;
    }
  }
  work.resize(kept);
}

// What one thread of the host did. It is made smaller whenever it has doubled, because a long
// trace holds ten times as many operators as outermost ones.
struct Thread {
  std::vector<Work> computation;
  Intervals busy;
  std::size_t computation_limit = 1 << 16;
  std::size_t busy_limit = 1 << 16;

  void add_computation(const Work& work) {
    computation.push_back(work);
    if (computation.size() < computation_limit) return;
    keep_outermost(computation);
    computation_limit = std::max(computation_limit, 2 * computation.size());
  }
  void add_busy(Interval time) {
    busy.push_back(time);
    if (busy.size() < busy_limit) return;
    busy = united(std::move(busy));
    busy_limit = std::max(busy_limit, 2 * busy.size());
  }
};

class Builder {
 public:
  void add(const TraceEvent& event);
  RankTrace finish(const std::string& path, const TraceHead& head);

 private:
  struct Launch {
    std::uint32_t correlation;
    double begin;
  };

  void add_annotation(const TraceEvent& event);
  std::uint32_t name_index(const std::string& name);
  std::optional<double> launch_of(std::uint32_t correlation) const;
  void set_kernel_sizes();
  void set_collectives();
  void set_host();
  std::vector<TorchStep> steps_of_gpu() const;

  RankTrace trace_;
  std::map<std::int64_t, Thread> threads_;
  std::set<std::int64_t> comm_threads_;
  std::int64_t main_thread_ = 0;
  bool has_kernels_ = false;
  std::vector<Collective> on_gpu_, on_host_;
  std::vector<Collective> nccl_calls_;  // on the host: older files say sizes only there
  std::vector<Launch> launches_;
  std::unordered_map<std::string, std::uint32_t> name_indices_;
};

double begin_of_collective(const Collective& collective) {
  return collective.time.begin;
}

Collective collective_of(const TraceEvent& event) {
  const double elements = event.in_elements + event.out_elements > 0
                              ? std::max(event.in_elements, event.out_elements)
                              : event.input_elements;
  return {time_of(event),
          collective_kind(event.collective.empty() ? event.name : event.collective),
          elements * dtype_bytes(event.dtype),
          dtype_bytes(event.dtype),
          static_cast<std::size_t>(event.group_size),
          static_cast<std::uint32_t>(event.correlation)};
}

std::uint32_t Builder::name_index(const std::string& name) {
  const auto [found, is_new] =
      name_indices_.try_emplace(name, static_cast<std::uint32_t>(trace_.names.size()));
  if (is_new) trace_.names.push_back(name);
  return found->second;
}

void Builder::add(const TraceEvent& event) {
  const std::string& category = event.category;
  const auto correlation = static_cast<std::uint32_t>(event.correlation);
  has_kernels_ |= category == "kernel";
  if (category == "cpu_op") {
    Thread& thread = threads_[event.thread];
    thread.add_busy(time_of(event));
    if (is_computing_operator(event.name)) {
      thread.add_computation({time_of(event), name_index(event.name), 0});
    }
  } else if (category == "kernel") {
    if (has(event.name, "nccl")) {
      on_gpu_.push_back(collective_of(event));
    } else {
      trace_.computation.push_back({time_of(event), name_index(event.name), correlation});
    }
  } else if (category == "gpu_memcpy" || category == "gpu_memset") {
    trace_.copies.push_back(time_of(event));
  } else if (category == "cuda_runtime" || category == "cuda_driver") {
    threads_[event.thread].add_busy(time_of(event));
    if (correlation != 0) launches_.push_back({correlation, event.begin});
  } else if (category == "user_annotation") {
    add_annotation(event);
  }
}

void Builder::add_annotation(const TraceEvent& event) {
  constexpr std::string_view kStep = "ProfilerStep#";
  const std::string_view name = event.name;
  if (name.starts_with(kStep)) {
    TorchStep step{0, time_of(event)};
    std::from_chars(name.data() + kStep.size(), name.data() + name.size(), step.number);
    trace_.steps.push_back(step);
    main_thread_ = event.thread;
  } else if (name.starts_with("enumerate(DataLoader)")) {
    trace_.loader.push_back(time_of(event));
  } else if (name.starts_with("gloo:") || name.starts_with("mpi:")) {
    comm_threads_.insert(event.thread);
    on_host_.push_back(collective_of(event));
  } else if (name.starts_with("nccl:")) {
    nccl_calls_.push_back(collective_of(event));
  }
  trace_.uses_ddp |= name.starts_with("DistributedDataParallel");
  trace_.uses_fsdp |= name.starts_with("FSDP::") || name.starts_with("FullyShardedDataParallel");
}
// When the kernel was launched. REQUIRES: launches_ are sorted by correlation.
std::optional<double> Builder::launch_of(std::uint32_t correlation) const {
  const auto launch = std::ranges::lower_bound(launches_, correlation, {}, &Launch::correlation);
  if (launch == launches_.end() || launch->correlation != correlation) return {};
  return launch->begin;
}

// A kernel without a size takes that of the call on the host in which it was launched.
void Builder::set_kernel_sizes() {
  for (Collective& kernel : on_gpu_) {
    const auto launch = launch_of(kernel.correlation);
    if (kernel.num_bytes > 0 || !launch) continue;
    auto call = std::ranges::upper_bound(nccl_calls_, *launch, {}, begin_of_collective);
    if (call == nccl_calls_.begin() || (--call)->time.end < *launch) continue;
    kernel.kind = call->kind;  // a kernel of send and receive may be an all-to-all
    kernel.num_bytes = call->num_bytes;
    kernel.element_bytes = call->element_bytes;
  }
}

// The host says the size of one rank's part of an all-gather.
void Builder::set_collectives() {
  for (std::vector<Collective>* const list : {&on_gpu_, &on_host_, &nccl_calls_}) {
    std::ranges::sort(*list, {}, begin_of_collective);
    for (Collective& each : *list) {
      if (each.num_ranks == 0) each.num_ranks = trace_.world_size;
      if (list != &on_gpu_ && each.kind == "all_gather") {
        each.num_bytes *= static_cast<double>(each.num_ranks);
      }
    }
  }
  set_kernel_sizes();
  std::vector<Collective>& all = trace_.collectives;
  all = std::move(on_gpu_);
  all.insert(all.end(), on_host_.begin(), on_host_.end());
  std::ranges::sort(all, {}, begin_of_collective);
}

// Threads that communicate also copy, but that is a part of the collective.
void Builder::set_host() {
  comm_threads_.erase(main_thread_);
  for (auto& [id, thread] : threads_) {
    if (comm_threads_.contains(id)) continue;
    trace_.host.insert(trace_.host.end(), thread.busy.begin(), thread.busy.end());
    if (trace_.has_gpu()) continue;
    trace_.computation.insert(trace_.computation.end(), thread.computation.begin(),
                              thread.computation.end());
  }
  threads_.clear();
  trace_.host = united(std::move(trace_.host));
  if (!trace_.has_gpu()) keep_outermost(trace_.computation);
  std::ranges::sort(trace_.computation, {}, &Work::begin);
}

// Empty if kernels cannot be joined to their launches.
std::vector<TorchStep> Builder::steps_of_gpu() const {
  std::vector<TorchStep> steps = trace_.steps;
  std::vector<bool> has_begun(steps.size(), false);
  double last_end = 0;
  for (const Work& kernel : trace_.computation) {
    const std::optional<double> launch = launch_of(kernel.correlation);
    if (!launch) continue;
    const auto after = std::ranges::upper_bound(
        trace_.steps, *launch, {}, [](const TorchStep& step) { return step.time.begin; });
    if (after == trace_.steps.begin()) continue;
    const std::size_t index = static_cast<std::size_t>(after - trace_.steps.begin()) - 1;
    if (*launch >= trace_.steps[index].time.end) continue;
    if (!has_begun[index]) steps[index].time.begin = kernel.begin;
    has_begun[index] = true;
    if (index + 1 == steps.size()) last_end = std::max(last_end, kernel.end);
  }
  if (std::ranges::find(has_begun, false) != has_begun.end()) return {};
  steps.back().time.end = last_end;
  return steps;
}

RankTrace Builder::finish(const std::string& path, const TraceHead& head) {
  trace_.path = path;
  trace_.says_rank = head.rank >= 0;
  trace_.rank = static_cast<std::size_t>(std::max<std::int64_t>(head.rank, 0));
  trace_.world_size = static_cast<std::size_t>(std::max<std::int64_t>(head.world_size, 1));
  trace_.backend = head.backend;
  trace_.num_events = head.num_events;
  if (has_kernels_) trace_.gpu = head.gpu.empty() ? "GPU" : head.gpu;
  require(!trace_.steps.empty(), ErrorCode::Io, "explain",
          "'{}' has no steps: record it with profile(schedule=torch.profiler.schedule(wait=1, "
          "warmup=1, active=3)), and call its step() after each training step",
          shown(path));
  std::ranges::sort(launches_, {}, &Launch::correlation);
  set_collectives();
  set_host();
  trace_.copies = united(std::move(trace_.copies));
  trace_.loader = united(std::move(trace_.loader));
  std::vector<TorchStep>& steps = trace_.steps;
  std::ranges::sort(steps, {}, [](const TorchStep& step) { return step.time.begin; });
  if (trace_.has_gpu()) {
    if (std::vector<TorchStep> on_gpu = steps_of_gpu(); !on_gpu.empty()) steps = std::move(on_gpu);
  }
  for (std::size_t i = 0; i + 1 < steps.size(); ++i) steps[i].time.end = steps[i + 1].time.begin;
  return std::move(trace_);
}

}  // namespace

std::string collective_kind(std::string_view name) {
  std::string letters;
  for (const char letter : name) {
    if (letter != '_')
      letters += static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  }
  constexpr std::pair<const char*, const char*> kKinds[] = {{"allreduce", "all_reduce"},
                                                            {"allgather", "all_gather"},
                                                            {"reducescatter", "reduce_scatter"},
                                                            {"broadcast", "broadcast"},
                                                            {"alltoall", "all_to_all"},
                                                            {"sendrecv", "send_recv"},
                                                            {"send", "send"},
                                                            {"recv", "recv"},
                                                            {"barrier", "barrier"},
                                                            {"scatter", "scatter"},
                                                            {"gather", "gather"},
                                                            {"reduce", "reduce"}};
  for (const auto& [word, kind] : kKinds) {
    if (has(letters, word)) return kind;
  }
  return "collective";
}

double dtype_bytes(std::string_view dtype) {
  const std::size_t colons = dtype.rfind(':');
  if (colons != std::string_view::npos) dtype.remove_prefix(colons + 1);
  std::string name(dtype);
  for (char& letter : name)
    letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  constexpr std::pair<const char*, double> kBytes[] = {
      {"float", 4}, {"double", 8}, {"half", 2},          {"bfloat16", 2},    {"int", 4},
      {"long", 8},  {"int64", 8},  {"long int", 8},      {"int32", 4},       {"short", 2},
      {"byte", 1},  {"char", 1},   {"unsigned char", 1}, {"signed char", 1}, {"bool", 1},
      {"uint8", 1}, {"int8", 1}};
  for (const auto& [word, bytes] : kBytes) {
    if (name == word) return bytes;
  }
  return name.starts_with("float8") ? 1 : 0;
}

bool is_computing_operator(std::string_view name) {
  return has(name, "::") && !has(name, "c10d") && !name.starts_with("autograd::") &&
         !name.starts_with("torch::autograd::");
}

RankTrace read_rank_trace(const std::string& path) {
  Builder builder;
  const TraceHead head =
      read_trace_events(path, [&](const TraceEvent& event) { builder.add(event); });
  return builder.finish(path, head);
}

}  // namespace lockstep::tools
