// lockstep train: runs one training, on one device or several, whose ranks are threads or
// processes.
#include <fmt/format.h>

#include <memory>
#include <optional>

#include "engine/core/error.h"
#include "engine/launch/launcher.h"
#include "engine/runtime/logical_device.h"
#include "tools/commands/commands.h"
#include "tools/commands/train_report.h"
#include "tools/commands/watching.h"
#include "tools/flags/command_line.h"
#include "tools/flags/help.h"
#include "tools/flags/training_flags.h"
#include "tools/record/measured_row.h"
#include "tools/record/run_file.h"
#include "tools/run/batch_norm_rows.h"
#include "tools/run/interruption.h"
#include "tools/run/placement.h"
#include "tools/run/processes.h"
#include "tools/run/settings.h"
#include "tools/run/slow_motion.h"
#include "tools/run/step_memory.h"
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
  DevicePlacement placement{mode_of(flags)};
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

// The first signal waits for the end of this; --row is a part of `compare`, which ends it.
constexpr const char* kEndingStep = "this step";

// The task of these flags, checked against its devices.
TrainingTask task_for(const TrainingFlags& flags, const DevicePlacement& placement) {
  reject_idle_flags(flags, {placement.mode}, placement.devices[0].type);
  TrainingTask task = read_task(flags, placement.devices.size());
  // Where ranks are processes, only rank 0 has outputs.
  if (flags.ranks == "threads") require_writable_outputs(flags);
  load_task(task, flags);
  task = fitted_task(std::move(task), flags, placement);
  require_rows_for_batch_norm(task, flags, {&placement, 1});
  return task;
}

void print_beginning(const TrainingFlags& flags, const TrainingTask& task,
                     const DevicePlacement& placement, const RankJob* job) {
  std::FILE* const out = progress_stream(flags);
  fmt::print(out, "{}\n", describe_devices(job ? devices_here(*job) : placement.devices));
  if (job) print_wrapped(out, describe_job(*job));
  print_task(flags, task, placement);
  std::fflush(out);
}

// Ranks that are processes and shard nothing hold what one device with their rows holds.
MeasuredRow measure_or_say_what_fits(const TrainingFlags& flags, const TrainingTask& task,
                                     const DevicePlacement& placement,
                                     const TrainingObserver& observer, Recorded is_recorded,
                                     RankJob* job) try {
  return measure_row(task, placement, observer, is_recorded, job);
} catch (const Error& error) {
  const bool has_no_memory =
      std::string_view(error.what()).find("out of memory on ") != std::string_view::npos;
  if (!has_no_memory || (job && placement.mode != Mode::ddp)) throw;
  const DevicePlacement here =
      job ? DevicePlacement{Mode::single, own_devices(placement, job)} : placement;
  const std::size_t num_processes = job ? placement.devices.size() : 1;
  throw Error(
      error.code(), error.operation(),
      std::string(error.message()) + say_which_batch_fits(task, flags, here, num_processes));
}

// Trains on devices that all belong to this process or, with a job, as one of its ranks. Rank 0
// prints and writes. Returns the exit code.
int train_and_report(const TrainingFlags& flags, const CommandLine& command,
                     const TrainingTask& task, const DevicePlacement& placement,
                     RankJob* job = nullptr) {
  const bool is_first = !job || job->is_first();
  const bool is_row = !flags.row_path.empty();
  apply_threads_per_device(flags,
                           job ? num_ranks_on_cores(job->environment) : placement.devices.size());
  if (job && is_first) require_writable_outputs(flags);
  if (is_first) print_beginning(flags, task, placement, job);
  std::optional<watch::Recorder> recorder;
  if (!flags.watch_path.empty()) {
    require_watchable(flags, placement.devices[0].type, placement.devices.size(), "--watch");
    require_short(task, placement, watch::Numbers::no);
    recorder.emplace(watch::Numbers::no);
  }
  if (is_row && !task.resumed) warm_up(task, placement, 0, job);
  Progress progress({{"training", task.num_steps}});
  TrainingObserver observer = report_progress(flags, task, progress);
  if (flags.live) observer.on_step = {};  // the lanes show it
  if (is_row) observer.checks = Checks::on;
  // The verdict tells an explosion.
  if (is_row && task.sampler == Sampler::exact) observer.on_loss = {};
  std::optional<Interruption> interruption;
  if (!is_row) interruption.emplace(is_first ? kEndingStep : nullptr);
  const Recorded is_recorded = needs_recording(flags) ? Recorded::yes : Recorded::no;
  const MeasuredRow measured =
      measure_or_say_what_fits(flags, task, placement, observer, is_recorded, job);
  const TrainingResult& result = measured.row.result;
  clear_status();
  if (!is_first) return result.stopped_by == 0 ? 0 : 128 + result.stopped_by;
  if (recorder) {
    write_watch_page(flags.watch_path, {recorded(task, placement, *recorder)},
                     progress_stream(flags));
  }
  if (is_row) write_process_row(flags.row_path, measured.row);
  report_training(flags, command, task, measured, own_devices(placement, job)[0]);
  return end_training(flags, task, result);
}

// Checks the flags, then starts --devices ranks. Returns the exit code.
int start_training_ranks(const TrainingFlags& flags, const CommandLine& command) {
  const int num_ranks = flags.devices.value_or(1);
  require(num_ranks >= 1 && num_ranks <= launch::kMaxWorldSize, ErrorCode::Usage, "--devices",
          "expected 1 to {} processes, found {}", launch::kMaxWorldSize, num_ranks);
  require_fitting_processes(flags, num_ranks);
  // Every rank would report these mistakes, so they are reported once, here.
  require_startable(flags, flags);
  reject_idle_flags(flags, {mode_of(flags)}, resolve_device_type(flags));
  read_task(flags, static_cast<std::size_t>(num_ranks));
  require_writable_outputs(flags);
  return start_ranks(command, num_ranks);
}

int train_as_rank(const TrainingFlags& flags, const launch::RankEnvironment& environment,
                  const CommandLine& command) {
  int exit_code = 0;
  name_rank_in_errors(environment, [&] {
    require_fitting_processes(flags, environment.world_size);
    const DeviceType type = resolve_device_type(flags);
    const DevicePlacement placement = placement_of(flags, environment.world_size, type);
    const TrainingTask task = task_for(flags, placement);
    run_as_rank(flags, type, common_settings(flags, task), [&](RankJob& job) {
      TrainingFlags in_force = flags;
      in_force.comm = job.comm;
      exit_code = train_and_report(in_force, command, task, placement, &job);
    });
  });
  return exit_code;
}

int train_here(const TrainingFlags& flags, const CommandLine& command) {
  const DeviceType type = resolve_device_type(flags);
  require_linkable(flags, type);
  const DevicePlacement placement{mode_of(flags), resolve_devices(flags, type)};
  require_simulated_devices(flags, placement.devices);
  const std::size_t num_devices = placement.devices.size();
  require(
      placement.mode != Mode::single || num_devices == 1, ErrorCode::Usage, "--parallel",
      "{} devices were asked for; say how to use them: --parallel dp, --parallel ddp, --parallel "
      "pipeline or --parallel tensor",
      num_devices);
  return train_and_report(flags, command, task_for(flags, placement), placement);
}

int run_train(TrainingFlags flags, const CommandLine& command) {
  const launch::RankEnvironment environment =
      launch::rank_environment(launch::current_environment());
  resolve_pipeline_flags(flags);
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
    if (!is_row) flags->given = given_flags(train);
    exit_code = run_train(*flags, command);
  });
}

}  // namespace lockstep::tools
