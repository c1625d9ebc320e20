#include "tools/training/ranks.h"

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <set>

#include "engine/comm/host_identity.h"
#include "engine/comm/thread_group.h"
#include "engine/core/error.h"
#include "engine/runtime/cpu_cores.h"
#include "engine/runtime/device_span.h"
#include "engine/runtime/logical_device.h"
#include "engine/runtime/physical_gpus.h"
#include "engine/trace/counters.h"
#include "simulate/slow_motion/acted_link.h"
#include "tools/report/json_integer.h"
#include "tools/report/status_line.h"
#include "tools/report/step_statistics.h"
#include "tools/report/trace_file.h"
#include "tools/training/losses.h"
#include "tools/training/slow_motion.h"

namespace lockstep::tools {
namespace {

// A copy of the weights that later runs do not change.
nn::StateDict copy_weights(const nn::Module& model) {
  nn::StateDict copy;
  for (const auto& [name, tensor] : nn::state_dict(model)) {
    copy.emplace_back(name, tensor.to(Device{}).clone());
  }
  return copy;
}

// Adds the report, and a copy of rank 0's weights. Throws Error{Numeric} when one is not finite.
void take_report(const TrainingTask& task, const RankModel& model, LoopReport report,
                 TrainingResult& result) {
  result.num_steps = task.num_steps;
  result.epoch_seconds = std::move(report.epoch_seconds);
  result.final_loss = report.last_epoch_loss;
  result.losses = std::move(report.losses);
  result.findings = std::move(report.findings);
  result.weights = copy_weights(*model.inner);
  require_finite(result.weights, task.num_steps,
                 result.findings ? "the run cannot be judged" : "nothing is saved");
  result.epoch_accuracy = std::move(report.epoch_accuracy);
}

// A device's memory: the most that was in use, and what earlier runs held of it at the start.
struct MemoryUse {
  std::size_t peak_bytes = 0;
  std::size_t held_before = 0;
};

// Adds what the devices sent and held: by track (rank or device), the bytes of its collectives and
// its memory, in which earlier runs have no part.
void take_bytes(const std::vector<std::size_t>& comm_bytes, const std::vector<MemoryUse>& memory,
                TrainingResult& result) {
  result.comm_bytes_per_step = std::ranges::max(comm_bytes) / result.num_steps;
  for (const auto& [peak, held_before] : memory) {
    result.peak_bytes.push_back(peak - std::min(peak, held_before));
  }
}

// Adds the breakdown of the first track's median step, what the steps of all tracks have in common,
// and how busy each track was and how well it hid its communication.
void take_times(const trace::Recording& recording, const std::vector<int>& tracks,
                TrainingResult& result) {
  if (recording.spans.empty()) return;
  result.breakdown = trace::median_step(recording.spans, tracks.front());
  std::vector<trace::StepBreakdown> all_steps;
  for (const int track : tracks) {
    result.busy_fraction.push_back(busy_fraction(recording, track));
    const auto steps = trace::step_breakdowns(recording.spans, track);
    result.comm_overlap.push_back(comm_overlap(steps));
    all_steps.insert(all_steps.end(), steps.begin(), steps.end());
  }
  result.step_statistics = step_statistics(all_steps);
}

// One thread for all that is trained.
void train_models(const TrainingTask& task, const DevicePlacement& placement,
                  const TrainingObserver& observer, TrainingResult& result) {
  // Spans of the caller belong to rank 0, or to the device that holds the parameters.
  const trace::TrackScope track(placement.mode == Mode::ddp ? 0 : placement.devices[0].index);
  const LocalModels models = make_models(task, placement);
  take_report(task, models.first(), run_loop(task, models, observer), result);
}

// One rank of DDP, whether it is a thread or a process. Rank 0's result is the run's.
void train_rank(const TrainingTask& task, Device device, comm::Communicator& communicator,
                const TrainingObserver& observer, TrainingResult& result) {
  const LocalModels models = make_rank_model(task, device, communicator);
  LoopReport report = run_loop(task, models, observer);
  if (communicator.rank() == 0) take_report(task, models.first(), std::move(report), result);
}

void train_threads(const TrainingTask& task, const DevicePlacement& placement,
                   const TrainingObserver& observer, TrainingResult& result) {
  comm::ThreadGroupOptions group;
  group.timeout_seconds = task.comm_timeout_seconds;
  group.default_plan = task.all_reduce_plan;
  group.link = task.link;
  const ShowLateRanks watch;
  comm::run_ranks(
      static_cast<int>(placement.devices.size()),
      [&](comm::Communicator& communicator) {
        const Device device = placement.devices[static_cast<std::size_t>(communicator.rank())];
        train_rank(task, device, communicator, observer, result);
      },
      slow_motion::with_acted_links(static_cast<int>(placement.devices.size()), group));
}

runtime::MemoryPool& memory_of(Device device) {
  return runtime::logical_device(device).memory();
}

// From now on the device's peak is what comes; what others hold already counts as held.
MemoryUse watch_memory(Device device) {
  memory_of(device).reset_peak();
  return {0, memory_of(device).statistics().current_bytes};
}

// What one rank of a job says of itself at the end.
struct RankSummary {
  std::string host;
  std::string physical_device;
  int device_index = 0;
  MemoryUse memory;
  std::size_t comm_bytes = 0;
  double cpu_seconds = 0;
};

std::string summarize(const RankJob& job, std::size_t held_before, double cpu_seconds) {
  runtime::LogicalDevice& device = runtime::logical_device(job.device);
  const std::string host = comm::host_identity();
  const auto gpu = static_cast<std::size_t>(std::max(0, device.gpu()));
  const bool is_on_gpu = device.gpu() != runtime::kNoGpu;
  nlohmann::json json = {
      {"host", host},
      {"physical_device", is_on_gpu ? runtime::physical_gpus().at(gpu).uuid : host},
      {"device_index", job.device.index},
      {"peak_bytes", device.memory().statistics().peak_bytes},
      {"held_before", held_before},
      {"comm_bytes", trace::collective_bytes_of(job.rank())},
      {"cpu_seconds", cpu_seconds}};
  return json.dump();
}

RankSummary read_summary(const std::string& text) {
  const nlohmann::json json = nlohmann::json::parse(text);
  RankSummary summary;
  summary.host = json.at("host");
  summary.physical_device = json.at("physical_device");
  read_integer(json, "device_index", summary.device_index);
  read_integer(json, "peak_bytes", summary.memory.peak_bytes);
  read_integer(json, "held_before", summary.memory.held_before);
  read_integer(json, "comm_bytes", summary.comm_bytes);
  summary.cpu_seconds = json.at("cpu_seconds");
  return summary;
}

trace::Recording put_together(const std::vector<std::string>& packed) {
  std::vector<trace::Recording> recordings;
  for (const std::string& bytes : packed) recordings.push_back(unpack_recording(bytes));
  return merge_recordings(std::move(recordings));
}

void take_summaries(const std::vector<RankSummary>& summaries, DeviceType type, JobResult& job) {
  std::set<std::string> physical;
  std::vector<std::size_t> comm_bytes;
  std::vector<MemoryUse> memory;
  for (const RankSummary& summary : summaries) {
    physical.insert(summary.physical_device);
    job.devices.push_back({type, summary.device_index});
    memory.push_back(summary.memory);
    comm_bytes.push_back(summary.comm_bytes);
    const bool is_peer_here = &summary != &summaries[0] && summary.host == summaries[0].host;
    if (is_peer_here) job.cpu_seconds_of_peers += summary.cpu_seconds;
  }
  take_bytes(comm_bytes, memory, job.result);
  job.num_physical_devices = physical.size();
}

TrainingTask first_steps(TrainingTask task) {
  task.num_steps = std::min<std::size_t>(task.num_steps, 5);
  return task;
}

TrainingResult train_here(const TrainingTask& task, const DevicePlacement& placement,
                          const TrainingObserver& observer) {
  require(placement.mode != Mode::single || placement.devices.size() == 1, ErrorCode::Usage,
          "train", "{} devices need --parallel dp or ddp", placement.devices.size());
  std::vector<MemoryUse> memory;
  for (const Device device : placement.devices) memory.push_back(watch_memory(device));
  trace::reset_collective_counts();
  TrainingResult result;
  const bool is_graph = task.launching == TrainingTask::Launching::graph;
  if (placement.mode == Mode::ddp && !is_graph) {
    train_threads(task, placement, observer, result);
  } else {
    train_models(task, placement, observer, result);
  }
  runtime::record_device_spans();
  std::vector<int> tracks;
  std::vector<std::size_t> comm_bytes;
  for (const Device device : placement.devices) {
    memory[tracks.size()].peak_bytes = memory_of(device).statistics().peak_bytes;
    tracks.push_back(placement.mode == Mode::ddp ? static_cast<int>(tracks.size()) : device.index);
    comm_bytes.push_back(trace::collective_bytes_of(tracks.back()));
  }
  take_bytes(comm_bytes, memory, result);
  take_times(trace::collect(), tracks, result);
  return result;
}

}  // namespace

trace::RecordOptions record_options(const TrainingTask& task, std::size_t num_devices) {
  constexpr std::size_t kMaxSteps = 16'000;  // of one device, each with up to 80 spans and samples
  trace::RecordOptions options;
  options.step_stride = (task.num_steps * num_devices + kMaxSteps - 1) / kMaxSteps;
  return options;
}

TrainingResult train(const TrainingTask& task, const DevicePlacement& placement,
                     const TrainingObserver& observer) {
  if (!task.slow_motion) return train_here(task, placement, observer);
  return act_out(task, placement, observer, [&](const TrainingTask& t, const TrainingObserver& o) {
    return train_here(t, placement, o);
  });
}

JobResult train_in_job(const TrainingTask& task, RankJob& job, const TrainingObserver& observer) {
  const std::size_t held_before = watch_memory(job.device).held_before;
  trace::reset_collective_counts();
  const double cpu_seconds_before = runtime::own_cpu_seconds();
  JobResult result;
  train_rank(task, job.device, job.communicator, observer, result.result);
  runtime::record_device_spans();
  trace::stop();
  wait_for_all_ranks(job, "trained");
  const double cpu_seconds = runtime::own_cpu_seconds() - cpu_seconds_before;
  const auto texts = gather_at_rank_zero(job, "summary", summarize(job, held_before, cpu_seconds));
  const auto packed = gather_at_rank_zero(job, "recording", pack_recording(trace::collect()));
  if (!job.is_first()) return {};
  std::vector<RankSummary> summaries;
  for (const std::string& text : texts) summaries.push_back(read_summary(text));
  take_summaries(summaries, job.device.type, result);
  result.recording = put_together(packed);
  std::vector<int> tracks(texts.size());
  std::iota(tracks.begin(), tracks.end(), 0);
  take_times(result.recording, tracks, result.result);
  return result;
}

void warm_up(const TrainingTask& task, const DevicePlacement& placement) {
  if (placement.devices[0].type == DeviceType::cuda) train(first_steps(task), placement);
}

void warm_up(const TrainingTask& task, RankJob& job) {
  TrainingResult unused;
  if (job.device.type != DeviceType::cuda) return;
  train_rank(first_steps(task), job.device, job.communicator, {}, unused);
}

}  // namespace lockstep::tools
