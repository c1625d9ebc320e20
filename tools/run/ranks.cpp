#include "tools/run/ranks.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "engine/comm/store/hello.h"
#include "engine/comm/thread_group.h"
#include "engine/core/error.h"
#include "engine/runtime/cpu_use.h"
#include "engine/runtime/device_span.h"
#include "engine/runtime/logical_device.h"
#include "engine/runtime/physical_gpus.h"
#include "engine/runtime/wait.h"
#include "engine/trace/counters.h"
#include "simulate/slow_motion/acted_link.h"
#include "tools/run/interruption.h"
#include "tools/run/pipeline.h"
#include "tools/run/slow_motion.h"
#include "tools/run/stop.h"
#include "tools/run/trace_file.h"

namespace lockstep::tools {
namespace {

// A device's memory beyond what earlier runs hold of it.
class MemoryWatch {
 public:
  explicit MemoryWatch(Device device)
      : memory_(&runtime::logical_device(device).memory()),
        held_before_(memory_->statistics().current_bytes) {
    memory_->reset_peak();
  }
  std::size_t peak_bytes() const {
    const std::size_t peak = memory_->statistics().peak_bytes;
    return peak - std::min(peak, held_before_);
  }

 private:
  runtime::MemoryPool* memory_;
  std::size_t held_before_;
};

// Adds the breakdown of the first track's median step, what the steps of all tracks have in common,
// and how busy each track was and how well it hid its communication.
void take_times(const TrainingTask& task, const trace::Recording& recording,
                const std::vector<int>& tracks, TrainingResult& result) {
  if (recording.spans.empty()) return;
  if (task.pipeline && tracks.size() > 1) result.bubble = measured_bubble(recording, tracks);
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

// One rank of DDP or of a pipeline, whether it is a thread or a process. Rank 0's result is the
// run's.
TrainingResult train_rank(const TrainingTask& task, Device device, comm::Communicator& communicator,
                          const TrainingObserver& observer) {
  return run_loop(task, make_strategies(task, device, communicator), observer);
}

TrainingResult train_threads(const TrainingTask& task, const DevicePlacement& placement,
                             const TrainingObserver& observer) {
  comm::ThreadGroupOptions group;
  group.timeout_seconds = task.comm_timeout_seconds;
  group.default_plan = task.all_reduce_plan;
  group.links = comm::fixed_links(task.link);
  TrainingResult of_rank_0;
  const int num_ranks = static_cast<int>(placement.devices.size());
  comm::run_ranks(
      num_ranks,
      [&](comm::Communicator& communicator) {
        const Device device = placement.devices[static_cast<std::size_t>(communicator.rank())];
        TrainingResult result = train_rank(task, device, communicator, observer);
        if (communicator.rank() == 0) of_rank_0 = std::move(result);
      },
      slow_motion::with_acted_links(num_ranks, group));
  return of_rank_0;
}

TrainingResult run_here(const TrainingTask& task, const DevicePlacement& placement,
                        const TrainingObserver& observer) {
  const bool is_graph = task.launching == TrainingTask::Launching::graph;
  if (has_ranks(placement.mode) && !is_graph) return train_threads(task, placement, observer);
  // One thread for all that is trained. Spans of the caller belong to rank 0, or to the device that
  // holds the parameters.
  const trace::TrackScope track(has_ranks(placement.mode) ? 0 : placement.devices[0].index);
  return run_loop(task, make_strategies(task, placement), observer);
}

TrainingResult train_here(const TrainingTask& task, const DevicePlacement& placement,
                          TrainingObserver observer) {
  StopOfThreads stop;
  if (Interruption::is_watched()) observer.stop = &stop;
  const std::vector<MemoryWatch> memory(placement.devices.begin(), placement.devices.end());
  trace::reset_collective_counts();
  TrainingResult result = run_here(task, placement, observer);
  runtime::record_device_spans();
  for (const MemoryWatch& watch : memory) result.peak_bytes.push_back(watch.peak_bytes());
  const std::vector<int> tracks = tracks_of(placement);
  for (const int track : tracks) {
    result.comm_bytes_per_step =
        std::max(result.comm_bytes_per_step, trace::collective_bytes_of(track) / result.num_steps);
  }
  take_times(task, trace::collect(), tracks, result);
  return result;
}

// A rank's report at the end of its job.
std::string summarize(const RankJob& job, const MemoryWatch& memory, double cpu_seconds) {
  const runtime::LogicalDevice& device = runtime::logical_device(job.device);
  const std::string host = comm::host_identity();
  const bool is_on_gpu = device.gpu() != runtime::kNoGpu;
  const auto gpu = static_cast<std::size_t>(std::max(0, device.gpu()));
  return nlohmann::json{
      {"host", host},
      {"physical_device", is_on_gpu ? runtime::physical_gpus().at(gpu).uuid : host},
      {"device_index", job.device.index},
      {"peak_bytes", memory.peak_bytes()},
      {"comm_bytes", trace::collective_bytes_of(job.rank())},
      {"cpu_seconds", cpu_seconds}}
      .dump();
}

void take_summaries(const std::vector<std::string>& texts, DeviceType type, JobResult& job) {
  std::set<std::string> physical;
  std::string host_of_rank_0;
  for (const std::string& text : texts) {
    const nlohmann::json summary = nlohmann::json::parse(text);
    const std::string host = summary.at("host");
    if (&text == &texts[0]) {
      host_of_rank_0 = host;
    } else if (host == host_of_rank_0) {
      job.cpu_seconds_of_peers += summary.at("cpu_seconds").get<double>();
    }
    physical.insert(summary.at("physical_device").get<std::string>());
    job.devices.push_back({type, summary.at("device_index").get<int>()});
    job.result.peak_bytes.push_back(summary.at("peak_bytes"));
    job.result.comm_bytes_per_step =
        std::max(job.result.comm_bytes_per_step,
                 summary.at("comm_bytes").get<std::size_t>() / job.result.num_steps);
  }
  job.num_physical_devices = physical.size();
}

TrainingTask first_steps(TrainingTask task) {
  task.num_steps = std::min<std::size_t>(task.num_steps, 5);
  return task;
}

// A step of an epoch's last batch, if that has fewer rows than the others: a GPU's algorithms are
// timed for each shape of a product when it first appears. Empty on a CPU, which times none.
std::optional<TrainingTask> last_step(TrainingTask task, Device device) {
  const std::size_t rest = task.data->train.num_rows() % task.batch;
  if (device.type == DeviceType::cpu || rest == 0 || task.num_steps < task.steps_per_epoch()) {
    return std::nullopt;
  }
  task.batch = rest;
  task.num_steps = 1;
  return task;
}

// Turns checks on, as for the rows themselves, so that an error in the first steps reads the same.
TrainingObserver checked() {
  TrainingObserver observer;
  observer.checks = Checks::on;
  return observer;
}

}  // namespace

trace::RecordOptions record_options(const TrainingTask& task, std::size_t num_devices) {
  constexpr std::size_t kMaxSteps = 16'000;  // steps, each with up to 80 spans and samples
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

namespace {

// Rank 0 writes --log, and all ranks take part in its means, whether or not they were given it.
void share_log(RankJob& job, std::string& log_path) {
  const bool has_log = !log_path.empty();
  if (job.is_first()) return job.store.set("log", has_log ? log_path : "");
  log_path = job.store.get("log", runtime::deadline_after(job.timeout_seconds));
  require(
      !has_log || !log_path.empty(), ErrorCode::Usage, "--log",
      "rank 0 writes the file, and rank 0 was not given the flag; give it to rank 0, or to all");
}

}  // namespace

JobResult train_in_job(const TrainingTask& task, RankJob& job, TrainingObserver observer) {
  share_log(job, observer.log_path);
  StopOfProcesses stop(job.communicator);
  if (Interruption::is_watched()) observer.stop = &stop;
  const MemoryWatch memory(job.device);
  trace::reset_collective_counts();
  const double cpu_seconds_before = runtime::own_cpu_seconds();
  JobResult result;
  result.result = train_rank(task, job.device, job.communicator, observer);
  runtime::record_device_spans();
  trace::stop();
  wait_for_all_ranks(job, "trained");
  const double cpu_seconds = runtime::own_cpu_seconds() - cpu_seconds_before;
  const auto summaries = gather_at_rank_zero(job, "summary", summarize(job, memory, cpu_seconds));
  const auto packed = gather_at_rank_zero(job, "recording", pack_recording(trace::collect()));
  if (!job.is_first()) {
    JobResult stopped;
    stopped.result.stopped_by = result.result.stopped_by;
    return stopped;
  }
  take_summaries(summaries, job.device.type, result);
  std::vector<trace::Recording> recordings;
  std::vector<int> tracks;
  for (const std::string& bytes : packed) {
    tracks.push_back(static_cast<int>(tracks.size()));
    recordings.push_back(unpack_recording(bytes));
  }
  result.recording = merge_recordings(std::move(recordings));
  take_times(task, result.recording, tracks, result.result);
  return result;
}

void warm_up(const TrainingTask& task, const DevicePlacement& placement, double seconds) {
  if (task.slow_motion) return;  // its times are the model's
  const runtime::Deadline warm = runtime::deadline_after(seconds);
  do {
    run_here(first_steps(task), placement, checked());
  } while (!runtime::has_passed(warm));
  const std::optional<TrainingTask> last = last_step(task, placement.devices[0]);
  if (last) run_here(*last, placement, checked());
}

void warm_up(const TrainingTask& task, RankJob& job) {
  train_rank(first_steps(task), job.device, job.communicator, checked());
  const std::optional<TrainingTask> last = last_step(task, job.device);
  if (last) train_rank(*last, job.device, job.communicator, checked());
}

}  // namespace lockstep::tools
