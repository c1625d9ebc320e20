// lockstep train: runs one training, on one device or several, whose ranks are threads or
// processes.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "engine/core/error.h"
#include "engine/launch/launcher.h"
#include "engine/runtime/logical_device.h"
#include "engine/trace/recorder.h"
#include "tools/commands/commands.h"
#include "tools/commands/train_report.h"
#include "tools/commands/watching.h"
#include "tools/flags/command_line.h"
#include "tools/flags/help.h"
#include "tools/flags/training_flags.h"
#include "tools/record/contention.h"
#include "tools/record/row_file.h"
#include "tools/run/interruption.h"
#include "tools/run/pipeline.h"
#include "tools/run/placement.h"
#include "tools/run/ranks.h"
#include "tools/run/settings.h"
#include "tools/run/slow_motion.h"
#include "tools/run/start_ranks.h"
#include "tools/text/format.h"
#include "tools/text/status_line.h"

namespace lockstep::tools {
namespace {

Mode mode_of(const TrainingFlags& flags) {
  if (flags.parallel == "ddp") return mode_of_ranks(flags.shard);
  return flags.parallel == "none" ? Mode::single : parse_mode(flags.parallel);
}

void require_fitting_processes(const TrainingFlags& flags, int num_ranks) {
  require(has_ranks(mode_of(flags)), ErrorCode::Usage, "--parallel",
          "ranks that are processes ({} here) train with --parallel ddp, pipeline or tensor; found "
          "{}, which is for one process with {}",
          num_ranks, flags.parallel, flags.parallel == "dp" ? "several devices" : "one device");
  require(flags.watch_path.empty(), ErrorCode::Usage, "--watch",
          "records ranks that are threads of this process; leave out --ranks processes and the "
          "launcher, or write a timeline by --trace");
  require(flags.device_ids.empty(), ErrorCode::Usage, "--device-ids",
          "is for ranks that are threads; a process takes the device of its local rank, and "
          "CUDA_VISIBLE_DEVICES says which GPUs there are");
}

DevicePlacement placement_of(const TrainingFlags& flags, int num_ranks, DeviceType type) {
  DevicePlacement placement{mode_of(flags), {}, std::nullopt};
  for (int rank = 0; rank < num_ranks; ++rank) placement.devices.push_back({type, rank});
  return placement;
}

// The ranks' devices on this host, which show who shares a GPU; on the CPU only the rank's own.
std::vector<Device> devices_here(const RankJob& rank) {
  if (rank.device.type == DeviceType::cpu) return {rank.device};
  std::vector<Device> devices;
  for (int i = 0; i < rank.environment.local_world_size; ++i) {
    devices.push_back({DeviceType::cuda, i});
  }
  return devices;
}

// nvidia-smi does not know the ranks of one job, so with a shared GPU it cannot tell.
std::optional<bool> contention(const JobResult& job, std::optional<bool> verdict) {
  const bool is_sharing = job.num_physical_devices < job.devices.size();
  const bool is_gpu = job.devices[0].type == DeviceType::cuda;
  return is_gpu && is_sharing ? std::nullopt : verdict;
}

void take_checks(const TrainingTask& task, TrainingObserver& observer) {
  observer.checks = Checks::on;
  if (task.sampler == Sampler::exact) observer.on_loss = {};  // the verdict tells an explosion
}

// The first signal waits for the end of this; --row is a part of `compare`, which ends it.
constexpr const char* kEndingStep = "this step";

// Returns the exit code.
int work(TrainingFlags flags, const CommandLine& command, const TrainingTask& task, RankJob& rank) {
  flags.comm = rank.comm;
  const DevicePlacement expected = placement_of(flags, rank.world_size(), rank.device.type);
  const std::size_t num_sharing = num_ranks_on_cores(rank.environment);
  apply_threads_per_device(flags, num_sharing);
  if (rank.is_first()) {
    require_writable_outputs(flags);
    fmt::print(progress_stream(flags), "{}\n{}\n", describe_devices(devices_here(rank)),
               wrap(describe_job(rank)));
    print_task(flags, task, expected);
    std::fflush(progress_stream(flags));
  }
  const bool is_row = !flags.row_path.empty();
  if (is_row && !task.resumed) warm_up(task, rank);
  if (needs_recording(flags)) trace::start(record_options(task, 1));
  ContentionProbe probe(rank.is_first() ? std::vector<Device>{rank.device} : std::vector<Device>{});
  probe.sample();
  Progress progress({{"training", task.num_steps}});
  TrainingObserver observer = report_progress(flags, task, probe, progress);
  if (is_row) take_checks(task, observer);
  std::optional<Interruption> interruption;
  if (!is_row) interruption.emplace(rank.is_first() ? kEndingStep : nullptr);
  JobResult job = train_in_job(task, rank, observer);
  clear_status();
  if (!rank.is_first()) {
    const int signal = job.result.stopped_by;
    return signal == 0 ? 0 : 128 + signal;
  }
  RunRow row = planned_row(task, {expected.mode, job.devices, job.num_physical_devices});
  row.contended = contention(job, probe.verdict(row.threads_per_device * num_sharing,
                                                num_sharing == 1 ? 0 : job.cpu_seconds_of_peers));
  row.result = std::move(job.result);
  if (is_row) write_row(flags.row_path, row);
  report_training(flags, command, task, row, job.recording, rank.device);
  return end_training(flags, task, row.result);
}

// Checks the flags, then starts --devices ranks. Returns the exit code.
int start_training_ranks(const TrainingFlags& flags, const CommandLine& command) {
  const int num_ranks = flags.devices.value_or(1);
  require(num_ranks >= 1 && num_ranks <= launch::kMaxWorldSize, ErrorCode::Usage, "--devices",
          "expected 1 to {} processes, found {}", launch::kMaxWorldSize, num_ranks);
  require_fitting_processes(flags, num_ranks);
  // Every rank would report these mistakes, so they are reported once, here.
  require_startable(flags, flags);
  require_effects(flags, {mode_of(flags)}, resolve_device_type(flags));
  read_task(flags, static_cast<std::size_t>(num_ranks));
  require_writable_outputs(flags);
  return start_ranks(command, num_ranks);
}

// Trains as a rank. Rank 0 prints and writes the same as `train` with threads. Returns the exit
// code.
int train_as_rank(const TrainingFlags& flags, const launch::RankEnvironment& environment,
                  const CommandLine& command) {
  int exit_code = 0;
  name_rank_in_errors(environment, [&] {
    require_fitting_processes(flags, environment.world_size);
    const DeviceType type = resolve_device_type(flags);
    const DevicePlacement placement = placement_of(flags, environment.world_size, type);
    require_effects(flags, {placement.mode}, type);
    TrainingTask task = read_task(flags, placement.devices.size());
    load_task(task, flags);
    require_fitting_sampler(task, placement);
    require_rows_for_batch_norm(task, flags, {&placement, 1});
    if (placement.mode == Mode::pipeline) {
      task = with_pipeline(std::move(task), flags, placement.devices.size());
    }
    run_as_rank(flags, type, common_settings(flags, task),
                [&](RankJob& rank) { exit_code = work(flags, command, task, rank); });
  });
  return exit_code;
}

// Trains on devices that all belong to this process. Returns the exit code.
int train_here(const TrainingFlags& flags, const CommandLine& command) {
  const DeviceType type = resolve_device_type(flags);
  require_linkable(flags, type);
  const std::vector<Device> devices = resolve_devices(flags, type);
  require_on_stage(flags, devices);
  const DevicePlacement placement{mode_of(flags), devices, std::nullopt};
  require(
      placement.mode != Mode::single || devices.size() == 1, ErrorCode::Usage, "--parallel",
      "{} devices were asked for; say how to use them: --parallel dp, --parallel ddp, --parallel "
      "pipeline or --parallel tensor",
      devices.size());
  require_effects(flags, {placement.mode}, type);
  TrainingTask task = make_task(flags, devices.size());
  require_fitting_sampler(task, placement);
  require_rows_for_batch_norm(task, flags, {&placement, 1});
  if (placement.mode == Mode::pipeline) {
    task = with_pipeline(std::move(task), flags, devices.size());
  }
  apply_threads_per_device(flags, devices.size());
  RunRow row = planned_row(task, placement);
  fmt::print(progress_stream(flags), "{}\n", describe_devices(devices));
  print_task(flags, task, row.placement);

  std::optional<watch::Recorder> recorder;
  if (!flags.watch_path.empty()) {
    require_watchable(flags, type, devices.size(), "--watch");
    require_short(task, placement, watch::Numbers::no);
    recorder.emplace(watch::Numbers::no);
  }
  if (needs_recording(flags)) trace::start(record_options(task, devices.size()));
  ContentionProbe probe(devices);
  probe.sample();
  Progress progress({{"training", task.num_steps}});
  TrainingObserver observer = report_progress(flags, task, probe, progress);
  if (flags.live) observer.on_step = {};  // the lanes show it
  const bool is_row = !flags.row_path.empty();
  if (is_row) take_checks(task, observer);
  const Interruption interruption(kEndingStep);
  row.result = train(task, row.placement, observer);
  clear_status();
  if (recorder)
    write_watch_page(flags.watch_path, {recorded(task, row.placement, *recorder)},
                     progress_stream(flags));
  if (needs_recording(flags)) trace::stop();
  row.contended = row.result.acted ? row.result.acted->put_off > kNotablePutOff
                                   : probe.verdict(devices.size() * row.threads_per_device);
  if (is_row) write_row(flags.row_path, row);
  report_training(flags, command, task, row, trace::collect(), devices[0]);
  return end_training(flags, task, row.result);
}

int run_train(TrainingFlags flags, const CommandLine& command) {
  const launch::RankEnvironment environment =
      launch::rank_environment(launch::current_environment());
  settle_pipeline_flags(flags);
  // Bitwise sums follow a plan of their own; a pipeline's messages must not wait for each other.
  const bool needs_own = flags.bitwise || flags.parallel == "pipeline";
  if (needs_own && flags.comm.empty()) flags.comm = "own";
  switch (resolve_ranks(flags, environment, flags.devices)) {
    case Ranks::threads:
      return train_here(flags, command);
    case Ranks::start:
      return start_training_ranks(flags, command);
    case Ranks::this_process:
      return train_as_rank(flags, environment, command);
  }
  return 0;
}

}  // namespace

void add_train_command(CLI::App& program, const CommandLine& command, int& exit_code) {
  auto flags = std::make_shared<TrainingFlags>();
  CLI::App& train = *program.add_subcommand("train", "Train a model on one device or several");
  add_training_flags(train, *flags);
  group_flags(train, training_groups({"--model", "--dataset", "--epochs", "--batch", "--optimizer",
                                      "--lr", "--parallel", "--devices", "--save", "--json"}));
  train.add_option("--row", flags->row_path, "")->group("");
  train.add_option("--end-after", flags->end_after, "")->group("");
  train.callback([flags, &train, command, &exit_code] {
    // `compare` has judged the flags of its rows: not every flag must have an effect in every row.
    const bool is_row = !flags->row_path.empty() || flags->end_after;
    if (!is_row) flags->said = said_flags(train);
    exit_code = run_train(*flags, command);
  });
}

}  // namespace lockstep::tools
