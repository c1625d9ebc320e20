// lockstep watch: trains a few steps, and makes a page in which one of them plays.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "engine/core/error.h"
#include "engine/launch/rank_environment.h"
#include "tools/commands/commands.h"
#include "tools/commands/compare_rows.h"
#include "tools/commands/watching.h"
#include "tools/flags/command_line.h"
#include "tools/flags/help.h"
#include "tools/flags/output_path.h"
#include "tools/flags/training_flags.h"
#include "tools/run/pipeline.h"
#include "tools/run/ranks.h"
#include "tools/run/settings.h"
#include "tools/text/format.h"

namespace lockstep::tools {
namespace {

struct WatchFlags {
  TrainingFlags training;
  std::vector<std::string> modes = {"ddp"};
  std::size_t devices = 4;
  bool numbers = false;
  std::string output_path = "step.html";
};

// Data for a model that the digits do not fit; empty: the digits fit.
std::string fitting_data(const std::string& model, std::size_t batch) {
  if (model.empty()) return {};
  const nn::ModelSpec spec = nn::parse_model(model);
  if (spec.takes_text()) return "embedded-text";
  if (spec.kind != nn::ModelSpec::Kind::mlp) return {};
  const std::size_t in = spec.mlp.sizes.front();
  const std::size_t out = spec.mlp.sizes.back();
  constexpr std::size_t kSteps = 4;
  if (in == 64 && out == 10) return {};
  return fmt::format("synthetic:{}x{}x{}", kSteps * batch, in, out);
}

void choose_data(TrainingFlags& flags) {
  if (std::ranges::count(flags.given, "--dataset") > 0) return;
  const std::string data =
      fitting_data(flags.model, static_cast<std::size_t>(std::max(1, flags.batch.value_or(64))));
  if (data.empty()) return;
  flags.dataset = data;
  print_wrapped(stdout, fmt::format("data: --dataset {}, which fits {}", data, flags.model));
}

// Buckets of a third of the gradients, so that a small model has some, too.
void choose_buckets(const TrainingFlags& flags, TrainingTask& task) {
  if (std::ranges::any_of(flags.given,
                          [](const std::string& name) { return name.ends_with("bucket-mib"); })) {
    return;
  }
  const double elements = nn::count_parameters(nn::parse_model(task.model), task.model_data());
  const double num_bytes = elements * static_cast<double>(size_of(task.dtype)) / 3;
  if (num_bytes >= 1) task.bucket_byte_limits = {static_cast<std::size_t>(num_bytes)};
}

// The rows of these modes; `compare` would put one device before them.
std::vector<PlannedRow> rows_to_watch(const WatchFlags& flags, DeviceType type) {
  std::vector<std::string> several;
  std::ranges::copy_if(flags.modes, std::back_inserter(several),
                       [](const std::string& mode) { return mode != "single"; });
  std::vector<PlannedRow> plan;
  const auto planned = plan_rows(flags.training, several, std::to_string(flags.devices), type);
  for (const std::string& mode : flags.modes) {
    const auto found = std::ranges::find_if(
        planned, [&](const PlannedRow& row) { return to_string(row.placement.mode) == mode; });
    require(found != planned.end(), ErrorCode::Usage, "--devices",
            "{} is a way to train on several devices, found {}", mode, flags.devices);
    plan.push_back(*found);
  }
  return plan;
}

void run_watch(WatchFlags flags) {
  TrainingFlags& training = flags.training;
  require(launch::rank_environment(launch::current_environment()).world_size == 1, ErrorCode::Usage,
          "watch", "starts its ranks itself, as threads; run it without a launcher");
  require(flags.modes.size() <= 2, ErrorCode::Usage, "--modes",
          "a page shows one recording, or two side by side, found {}", flags.modes.size());
  require(flags.devices >= 1, ErrorCode::Usage, "--devices", "expected 1 to {}, found 0",
          kMostWatched);
  if (training.device == "auto") training.device = "cpu";
  training.ranks = training.ranks.empty() ? "threads" : training.ranks;
  training.comm = training.comm.empty() ? "own" : training.comm;
  const DeviceType type = resolve_device_type(training);
  require_watchable(training, type, flags.devices, "watch");
  require(training.comm == "own", ErrorCode::Usage, "--comm",
          "the plan of NCCL's collectives is not known; leave it out");
  require_writable({{"--output", flags.output_path}});
  choose_data(training);
  const bool has_pipeline = std::ranges::count(flags.modes, "pipeline") > 0;
  if (has_pipeline && training.model.empty()) {
    training.model = default_pipeline_model(training, flags.devices);
  }
  if (!training.steps && !training.epochs) {
    training.steps = static_cast<int>(watch::kRecordedStep) + 1;
  }
  std::vector<PlannedRow> plan = rows_to_watch(flags, type);
  for (PlannedRow& row : plan) choose_buckets(training, row.task);
  const watch::Numbers numbers = flags.numbers ? watch::Numbers::yes : watch::Numbers::no;
  std::vector<Mode> modes;
  for (const PlannedRow& row : plan) {
    modes.push_back(row.placement.mode);
    require_short(row.task, row.placement, numbers);
  }
  reject_idle_flags(training, modes, type);
  std::vector<watch::PageRecording> recordings;
  for (const PlannedRow& row : plan) {
    apply_threads_per_device(training, row.placement.devices.size());
    watch::Recorder recorder(numbers);
    train(row.task, row.placement);
    recordings.push_back(recorded(row.task, row.placement, recorder));
    print_wrapped(stdout, fmt::format("{}: {}", recordings.back().title, recordings.back().about));
    print_wrapped(stdout, watch::tell(recordings.back().recording).fault);
  }
  write_watch_page(flags.output_path, recordings, stdout);
}

}  // namespace

void add_watch_command(CLI::App& program) {
  auto flags = std::make_shared<WatchFlags>();
  CLI::App& watch = *program.add_subcommand(
      "watch", "Train a few steps, and make a page in which one of them plays");
  add_compare_flags(watch, flags->training);
  group_flags(watch, training_groups({"--modes", "--devices", "--model", "--dataset", "--batch",
                                      "--plan", "--numbers", "--output"}));
  add_option(watch, "--modes", flags->modes, "MODES",
             "how the devices train: single, dp, ddp, pipeline, zero1, zero2, zero3 or tensor; "
             "two of them play side by side, as in dp,ddp")
      ->delimiter(',')
      ->check(one_of({"single", "dp", "ddp", "pipeline", "zero1", "zero2", "zero3", "tensor"}));
  watch.add_option("--devices", flags->devices, "how many devices of the CPU");
  watch.add_flag("--numbers", flags->numbers,
                 "show the values of gradients and weights, too: for small models");
  add_option(watch, "-o,--output", flags->output_path, "FILE", "write the page here");
  watch.callback([flags, &watch] {
    flags->training.given = given_flags(watch);
    resolve_pipeline_flags(flags->training);
    run_watch(*flags);
  });
}

}  // namespace lockstep::tools
