#include "tools/train_processes.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/core/error.h"
#include "engine/launch/launcher.h"
#include "engine/runtime/logical_device.h"
#include "engine/trace/recorder.h"
#include "tools/cli/idle_flags.h"
#include "tools/ranks/start_ranks.h"
#include "tools/report/contention.h"
#include "tools/report/row_file.h"
#include "tools/report/status_line.h"
#include "tools/report/train_report.h"
#include "tools/training/placement.h"
#include "tools/training/ranks.h"

namespace lockstep::tools {
namespace {

void require_fitting_processes(const TrainingFlags& flags, int num_ranks) {
  require(
      flags.parallel == "ddp", ErrorCode::Usage, "--parallel",
      "ranks that are processes ({} here) train with --parallel ddp; found {}, which is for one "
      "process with {}",
      num_ranks, flags.parallel, flags.parallel == "dp" ? "several devices" : "one device");
  require(flags.device_ids.empty(), ErrorCode::Usage, "--device-ids",
          "is for ranks that are threads; a process takes the device of its local rank, and "
          "CUDA_VISIBLE_DEVICES says which GPUs there are");
}

DevicePlacement placement_of(int num_ranks, DeviceType type) {
  DevicePlacement placement{Mode::ddp, {}, std::nullopt};
  for (int rank = 0; rank < num_ranks; ++rank) placement.devices.push_back({type, rank});
  return placement;
}

// The ranks' devices on this host, so that it shows which share a GPU; on the CPU the rank's own.
std::vector<Device> devices_here(const RankJob& rank) {
  if (rank.device.type == DeviceType::cpu) return {rank.device};
  std::vector<Device> devices;
  for (int i = 0; i < rank.environment.local_world_size; ++i) {
    devices.push_back({DeviceType::cuda, i});
  }
  return devices;
}

// Ranks of one job that share a GPU are strangers to NVML, so it cannot tell who disturbs whom.
std::optional<bool> contention(const JobResult& job, std::optional<bool> verdict) {
  const bool is_sharing = job.num_physical_devices < job.devices.size();
  const bool is_gpu = job.devices[0].type == DeviceType::cuda;
  return is_gpu && is_sharing ? std::nullopt : verdict;
}

void work(TrainingFlags flags, const CommandLine& command, const TrainingTask& task,
          RankJob& rank) {
  flags.comm = rank.comm;
  const DevicePlacement expected = placement_of(rank.world_size(), rank.device.type);
  const std::size_t num_sharing = num_ranks_on_cores(rank.environment);
  apply_threads_per_device(flags, num_sharing);
  if (rank.is_first()) {
    require_writable_outputs(flags);
    fmt::print(progress_stream(flags), "{}\n{}\n", describe_devices(devices_here(rank)),
               describe_job(rank));
    print_task(flags, task, expected);
    std::fflush(progress_stream(flags));
  }
  const bool is_row = !flags.row_folder.empty();
  if (is_row) warm_up(task, rank);
  if (needs_recording(flags)) trace::start(record_options(task, 1));
  ContentionProbe probe(rank.is_first() ? std::vector<Device>{rank.device} : std::vector<Device>{});
  probe.sample();
  Progress progress({{"training", task.num_steps}});
  TrainingObserver observer = report_progress(flags, task, probe, progress);
  if (is_row) {
    observer.checks = Checks::on;
    if (task.sampler == Sampler::exact) observer.on_loss = {};  // the verdict tells an explosion
  }
  JobResult job = train_in_job(task, rank, observer);
  clear_status();
  if (!rank.is_first()) return;
  RunRow row = planned_row(task, {Mode::ddp, job.devices, job.num_physical_devices});
  row.contended = contention(job, probe.verdict(row.threads_per_device * num_sharing,
                                                num_sharing == 1 ? 0 : job.cpu_seconds_of_peers));
  row.result = std::move(job.result);
  if (is_row) write_row(RowFolder{flags.row_folder}.row(), row);
  report_training(flags, command, task, row, job.recording, rank.device);
}

}  // namespace

int start_training_ranks(const TrainingFlags& flags, const CommandLine& command) {
  const int num_ranks = flags.devices.value_or(1);
  require(num_ranks >= 1 && num_ranks <= launch::kMaxWorldSize, ErrorCode::Usage, "--devices",
          "expected 1 to {} processes, found {}", launch::kMaxWorldSize, num_ranks);
  require_fitting_processes(flags, num_ranks);
  // Every rank would find these mistakes; so they are said once.
  require_startable(flags, flags);
  require_effects({flags, {Mode::ddp}, resolve_device_type(flags)});
  read_task(flags, static_cast<std::size_t>(num_ranks));
  require_writable_outputs(flags);
  return start_ranks(flags, command, num_ranks);
}

void train_as_rank(const TrainingFlags& flags, const launch::RankEnvironment& environment,
                   const CommandLine& command) {
  name_rank_in_errors(environment, [&] {
    require_fitting_processes(flags, environment.world_size);
    const DeviceType type = resolve_device_type(flags);
    require_effects({flags, {Mode::ddp}, type});
    TrainingTask task = read_task(flags, static_cast<std::size_t>(environment.world_size));
    load_task(task, flags);
    require_fitting_sampler(task, placement_of(environment.world_size, type));
    run_as_rank(flags, type, common_settings(flags, task),
                [&](RankJob& rank) { work(flags, command, task, rank); });
  });
}

}  // namespace lockstep::tools
