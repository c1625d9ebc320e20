#include "tools/run/ranks.h"

#include <algorithm>
#include <functional>
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
#include "simulate/slow_motion/simulated_link.h"
#include "tools/run/interruption.h"
#include "tools/run/memory_watch.h"
#include "tools/run/pipeline.h"
#include "tools/run/slow_motion.h"
#include "tools/run/stop.h"
#include "tools/run/trace_file.h"

namespace lockstep::tools {
namespace {

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
        TrainingResult result =
            run_loop(task, make_strategies(task, device, communicator), observer);
        if (communicator.rank() == 0) of_rank_0 = std::move(result);
      },
      slow_motion::with_simulated_links(num_ranks, group));
  return of_rank_0;
}

// Rank 0's result is the run's.
TrainingResult run_ranks(const TrainingTask& task, const DevicePlacement& placement,
                         const TrainingObserver& observer, RankJob* job) {
  if (job) {
    return run_loop(task, make_strategies(task, job->device, job->communicator), observer);
  }
  const bool is_graph = task.launching == TrainingTask::Launching::graph;
  if (has_ranks(placement.mode) && !is_graph) return train_threads(task, placement, observer);
  // One thread for all that is trained. Spans of the caller belong to rank 0, or to the device that
  // holds the parameters.
  const trace::TrackScope track(has_ranks(placement.mode) ? 0 : placement.devices[0].index);
  return run_loop(task, make_strategies(task, placement), observer);
}

std::unique_ptr<Stop> make_stop(RankJob* job) {
  if (!job) return std::make_unique<StopOfThreads>();
  return std::make_unique<StopOfProcesses>(job->communicator);
}

// Rank 0 writes --log, and all ranks take part in its means, whether or not they were given it.
void share_log(RankJob& job, std::string& log_path) {
  const bool has_log = !log_path.empty();
  if (job.is_first()) return job.store.set("log", has_log ? log_path : "");
  log_path = job.store.get("log", runtime::deadline_after(job.timeout_seconds));
  require(
      !has_log || !log_path.empty(), ErrorCode::Usage, "--log",
      "rank 0 writes the file, and rank 0 was not given the flag; give it to rank 0, or to all");
}

// A process's report on its devices at the end of a run. tracks: theirs.
std::string report(const std::vector<Device>& devices, const std::vector<int>& tracks,
                   const MemoryWatch& memory, double cpu_seconds) {
  const std::string host = comm::host_identity();
  nlohmann::json report{{"host", host}, {"cpu_seconds", cpu_seconds}};
  for (std::size_t i = 0; i < devices.size(); ++i) {
    const int gpu = runtime::logical_device(devices[i]).gpu();
    const bool is_on_gpu = gpu != runtime::kNoGpu;
    report["devices"].push_back(
        {{"index", devices[i].index},
         {"physical",
          is_on_gpu ? runtime::physical_gpus().at(static_cast<std::size_t>(gpu)).uuid : host},
         {"peak_bytes", memory.peak_of_steps(i)},
         {"peak_bytes_beside_steps", memory.peak_beside_steps(i)},
         {"comm_bytes", trace::collective_bytes_of(tracks[i])}});
  }
  return report.dump();
}

// Rank 0's report comes first.
void take_reports(const std::vector<std::string>& texts, DeviceType type, Run& run) {
  std::set<std::string> physical;
  std::string host_of_rank_0;
  run.placement.devices.clear();
  for (const std::string& text : texts) {
    const nlohmann::json report = nlohmann::json::parse(text);
    const std::string host = report.at("host");
    if (&text == &texts[0]) {
      host_of_rank_0 = host;
    } else if (host == host_of_rank_0) {
      run.cpu_seconds_of_peers += report.at("cpu_seconds").get<double>();
    }
    for (const nlohmann::json& device : report.at("devices")) {
      physical.insert(device.at("physical").get<std::string>());
      run.placement.devices.push_back({type, device.at("index").get<int>()});
      run.result.peak_bytes.push_back(device.at("peak_bytes"));
      run.result.peak_bytes_beside_steps.push_back(device.at("peak_bytes_beside_steps"));
      run.result.comm_bytes_per_step =
          std::max(run.result.comm_bytes_per_step,
                   device.at("comm_bytes").get<std::size_t>() / run.result.num_steps);
    }
  }
  run.placement.num_physical = physical.size();
  std::vector<std::size_t>& beside = run.result.peak_bytes_beside_steps;
  if (std::ranges::equal(beside, run.result.peak_bytes, std::less_equal<>())) beside.clear();
}

// The recordings of all ranks, on rank 0.
trace::Recording gather_recordings(RankJob* job) {
  if (!job) return trace::collect();
  std::vector<trace::Recording> recordings;
  for (const std::string& bytes :
       gather_at_rank_zero(*job, "recording", pack_recording(trace::collect()))) {
    recordings.push_back(unpack_recording(bytes));
  }
  return merge_recordings(std::move(recordings));
}

Run train_at_full_speed(const TrainingTask& task, const DevicePlacement& placement,
                        TrainingObserver observer, RankJob* job) {
  if (job) share_log(*job, observer.log_path);
  const std::unique_ptr<Stop> stop = make_stop(job);
  if (Interruption::is_watched()) observer.stop = stop.get();
  const std::vector<Device> devices = own_devices(placement, job);
  const std::vector<int> tracks = job ? std::vector{job->rank()} : tracks_of(placement);
  MemoryWatch memory(devices);
  observer.memory = &memory;
  trace::reset_collective_counts();
  const double cpu_seconds_before = runtime::own_cpu_seconds();
  Run run{run_ranks(task, placement, observer, job), placement, {}};
  runtime::record_device_spans();
  trace::stop();
  if (job) wait_for_all_ranks(*job, "trained");
  const std::string own =
      report(devices, tracks, memory, runtime::own_cpu_seconds() - cpu_seconds_before);
  const auto reports = job ? gather_at_rank_zero(*job, "report", own) : std::vector{own};
  run.recording = gather_recordings(job);
  if (job && !job->is_first()) return run;
  take_reports(reports, devices[0].type, run);
  take_times(task, run.recording, tracks_of(run.placement), run.result);
  return run;
}

TrainingTask first_steps(TrainingTask task) {
  task.num_steps = std::min<std::size_t>(task.num_steps, 5);
  return task;
}

// A step of an epoch's last batch, if that has fewer rows than the others: a GPU's algorithms are
// timed for each shape of a product when it first appears. Empty on a CPU, which times none.
std::optional<TrainingTask> last_step(TrainingTask task, DeviceType type) {
  const std::size_t rest = task.data->train.num_rows() % task.batch;
  if (type == DeviceType::cpu || rest == 0 || task.num_steps < task.steps_per_epoch()) {
    return std::nullopt;
  }
  task.batch = rest;
  task.num_steps = 1;
  return task;
}

}  // namespace

std::vector<Device> own_devices(const DevicePlacement& placement, const RankJob* job) {
  return job ? std::vector{job->device} : placement.devices;
}

Run train(const TrainingTask& task, const DevicePlacement& placement,
          const TrainingObserver& observer, RankJob* job) {
  if (!task.slow_motion) return train_at_full_speed(task, placement, observer, job);
  return train_in_slow_motion(task, placement, observer,
                              [&](const TrainingTask& t, const TrainingObserver& o) {
                                return train_at_full_speed(t, placement, o, job);
                              });
}

void warm_up(const TrainingTask& task, const DevicePlacement& placement, double seconds,
             RankJob* job) {
  if (task.slow_motion) return;  // its times are the model's
  // With checks, as for the rows themselves, so that an error in the first steps reads the same.
  TrainingObserver checked;
  checked.checks = Checks::on;
  const runtime::Deadline warm = runtime::deadline_after(seconds);
  do {
    run_ranks(first_steps(task), placement, checked, job);
  } while (!runtime::has_passed(warm));
  const std::optional<TrainingTask> last = last_step(task, placement.devices[0].type);
  if (last) run_ranks(*last, placement, checked, job);
}

}  // namespace lockstep::tools
