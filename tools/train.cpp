// lockstep train: one training run, on one device or several.
#include <fmt/format.h>

#include <cstdio>
#include <memory>

#include "engine/core/error.h"
#include "engine/nn/weights_file.h"
#include "engine/runtime/logical_device.h"
#include "engine/trace/recorder.h"
#include "tools/commands.h"
#include "tools/report/contention.h"
#include "tools/report/row_table.h"
#include "tools/report/run_file.h"
#include "tools/report/trace_file.h"
#include "tools/report/weights_digest.h"
#include "tools/report/workload.h"
#include "tools/training/devices.h"
#include "tools/training/trainer.h"

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

void run_train(const TrainingFlags& flags, const CommandLine& command) {
  std::FILE* const out = flags.json_path == "-" ? stderr : stdout;
  const std::vector<Device> devices = resolve_devices(flags, resolve_device_type(flags));
  DevicePlacement placement{parse_mode(flags, devices.size()), devices};
  const TrainingTask task = make_task(flags, devices.size());
  require_fitting_sampler(task, placement);
  apply_threads_per_device(flags, devices.size());
  fmt::print(out, "{}\n", describe_devices(devices));
  fmt::print(out, "{} on {}: {} training rows, {} steps of {} rows\n", task.model, flags.dataset,
             task.data->train.num_rows(), task.num_steps, task.batch);
  for (const std::string& note : {idle_note(task, placement), torch_sampler_note(task)}) {
    if (!note.empty()) fmt::print(out, "{}\n", note);
  }

  const bool records = !flags.trace_path.empty() || !flags.json_path.empty();
  if (records) trace::start();
  nvml::ContentionProbe probe = watch(devices);
  probe.sample();
  TrainingObserver observer;
  observer.log_path = flags.log_path;
  observer.on_epoch = [out, &probe](std::size_t epoch, double seconds, double loss) {
    probe.sample();
    fmt::print(out, "epoch {}: {}, loss {:.4f}\n", epoch + 1, trace::format_seconds(seconds), loss);
    std::fflush(out);
  };
  RunRow row;
  row.placement = placement;
  row.threads_per_device = runtime::threads_per_device();
  row.weight_tolerance = weight_tolerance(task.dtype, task.num_steps, task.summation);
  row.result = train(task, placement, observer);
  if (records) trace::stop();
  row.contended = probe.verdict();

  for (const std::string& note : contention_notes({row})) fmt::print(out, "{}\n", note);
  fmt::print(out, "test accuracy: {:.2f} %\n", 100 * row.result.test_accuracy);
  fmt::print(out, "weights sha256: {}\n", weights_digest(row.result.weights));
  if (!flags.save_path.empty()) nn::save_weights(flags.save_path, row.result.weights);
  if (!flags.trace_path.empty()) write_trace(flags, placement);
  if (!flags.json_path.empty()) {
    const double optimizer_seconds = row.result.breakdown ? row.result.breakdown->optimizer : 0;
    write_json(flags.json_path,
               make_run_file(command, flags, task, {row},
                             measure_workload(task, devices[0], optimizer_seconds)));
  }
}

}  // namespace

void add_train_command(CLI::App& app, const CommandLine& command) {
  auto flags = std::make_shared<TrainingFlags>();
  CLI::App* train = app.add_subcommand("train", "Train a model on one device or several");
  add_training_flags(*train, *flags);
  add_placement_flags(*train, *flags);
  train->callback([flags, command] { run_train(*flags, command); });
}

}  // namespace lockstep::tools
