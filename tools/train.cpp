// lockstep train: one training run, on one device or several.
#include <fmt/format.h>

#include <memory>

#include "engine/core/error.h"
#include "engine/runtime/logical_device.h"
#include "engine/trace/recorder.h"
#include "tools/cli/idle_flags.h"
#include "tools/commands.h"
#include "tools/report/contention.h"
#include "tools/report/row_file.h"
#include "tools/report/status_line.h"
#include "tools/report/train_report.h"
#include "tools/train_processes.h"
#include "tools/training/placement.h"
#include "tools/training/ranks.h"
#include "tools/training/slow_motion.h"

namespace lockstep::tools {
namespace {

Mode parse_mode(const TrainingFlags& flags, std::size_t num_devices) {
  if (flags.parallel == "dp") return Mode::data_parallel;
  if (flags.parallel == "ddp") return Mode::ddp;
  require(num_devices == 1, ErrorCode::Usage, "--parallel",
          "{} devices were asked for; say how to use them: --parallel dp or --parallel ddp",
          num_devices);
  return Mode::single;
}

// All devices are this process's own.
void train_here(const TrainingFlags& flags, const CommandLine& command) {
  const DeviceType type = resolve_device_type(flags);
  require_linkable(flags, type);
  const std::vector<Device> devices = resolve_devices(flags, type);
  require_on_stage(flags, devices);
  const DevicePlacement placement{parse_mode(flags, devices.size()), devices, std::nullopt};
  require_effects({flags, {placement.mode}, type});
  const TrainingTask task = make_task(flags, devices.size());
  require_fitting_sampler(task, placement);
  apply_threads_per_device(flags, devices.size());
  RunRow row = planned_row(task, placement);
  fmt::print(progress_stream(flags), "{}\n", describe_devices(devices));
  print_task(flags, task, row.placement);

  if (needs_recording(flags)) trace::start(record_options(task, devices.size()));
  ContentionProbe probe(devices);
  probe.sample();
  Progress progress({{"training", task.num_steps}});
  TrainingObserver observer = report_progress(flags, task, probe, progress);
  if (flags.watch) observer.on_step = {};  // the lanes show it
  row.result = train(task, row.placement, observer);
  clear_status();
  if (needs_recording(flags)) trace::stop();
  row.contended = row.result.acted ? row.result.acted->put_off > kNotablePutOff
                                   : probe.verdict(devices.size() * row.threads_per_device);
  report_training(flags, command, task, row, trace::collect(), devices[0]);
}

int run_train(TrainingFlags flags, const CommandLine& command) {
  const launch::RankEnvironment environment =
      launch::rank_environment(launch::current_environment());
  // Bitwise sums follow a plan of their own.
  if (flags.bitwise && flags.comm.empty()) flags.comm = "own";
  switch (resolve_ranks(flags, environment, flags.devices)) {
    case Ranks::threads:
      train_here(flags, command);
      return 0;
    case Ranks::start:
      return start_training_ranks(flags, command);
    case Ranks::this_process:
      train_as_rank(flags, environment, command);
      return 0;
  }
  return 0;
}

TrainingFlags read_row_flags(const std::string& folder) {
  TrainingFlags flags = read_flags(RowFolder{folder}.flags());
  flags.row_folder = folder;
  return flags;
}

}  // namespace

void add_train_command(Command& program, const CommandLine& command, int& exit_code) {
  auto flags = std::make_shared<TrainingFlags>();
  Command train = program.add_command("train", "Train a model on one device or several");
  add_training_flags(train, *flags);
  // A row of `compare`, which has judged its flags: not each need have an effect in every row.
  train.add_option("--row", flags->row_folder, "").hidden();
  train.on_run([flags, train, command, &exit_code] {
    if (flags->row_folder.empty()) {
      flags->said = train.said_flags();
    } else {
      *flags = read_row_flags(flags->row_folder);
    }
    exit_code = run_train(*flags, command);
  });
}

}  // namespace lockstep::tools
