// lockstep compare: the same training in several ways, as a table of epoch times, with proof that
// every way computed the same weights.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>

#include "engine/core/error.h"
#include "engine/launch/rank_environment.h"
#include "engine/nn/mlp.h"
#include "engine/runtime/logical_device.h"
#include "engine/runtime/physical_gpus.h"
#include "engine/trace/recorder.h"
#include "tools/cli/numbers.h"
#include "tools/commands.h"
#include "tools/process_rows.h"
#include "tools/report/contention.h"
#include "tools/report/row_table.h"
#include "tools/report/run_file.h"
#include "tools/report/trace_file.h"
#include "tools/report/workload.h"
#include "tools/training/devices.h"
#include "tools/training/trainer.h"

namespace lockstep::tools {
namespace {

struct CompareFlags {
  TrainingFlags training;
  std::string modes = "dp,ddp";
  std::string device_counts = "1,2,4,8";
  bool explain_drift = false;
  std::vector<std::string> for_train;  // the same flags, for ranks that are processes
};

std::vector<Mode> parse_modes(std::string_view text) {
  std::vector<Mode> modes;
  while (true) {
    const std::size_t comma = text.find(',');
    const std::string_view name = text.substr(0, comma);
    require(name == "dp" || name == "ddp", ErrorCode::Usage, "--modes",
            "unknown mode '{}'; use dp, ddp or dp,ddp", name);
    modes.push_back(name == "dp" ? Mode::data_parallel : Mode::ddp);
    if (comma == std::string_view::npos) return modes;
    text.remove_prefix(comma + 1);
  }
}

std::vector<std::size_t> parse_device_counts(const std::string& text) {
  const std::vector<std::size_t> counts = parse_list("--devices", text);
  for (const std::size_t count : counts) {
    require(count >= 1 && count <= 4096, ErrorCode::Usage, "--devices",
            "expected counts such as 1,2,4,8, found {}", count);
  }
  return counts;
}

std::vector<DevicePlacement> list_placements(const CompareFlags& flags, DeviceType type,
                                             const std::vector<std::size_t>& device_counts) {
  std::vector<DevicePlacement> placements{{Mode::single, {Device{type, 0}}}};
  for (const Mode mode : parse_modes(flags.modes)) {
    for (const std::size_t count : device_counts) {
      TrainingFlags training = flags.training;
      training.devices = static_cast<int>(count);
      placements.push_back({mode, resolve_devices(training, type)});
    }
  }
  return placements;
}

// A GPU's first steps load kernels and find the fastest products; no row's epochs should hold that.
void warm_up(TrainingTask task, const DevicePlacement& placement) {
  if (placement.devices[0].type != DeviceType::cuda) return;
  task.num_steps = std::min<std::size_t>(task.num_steps, 5);
  train(task, placement);
}

// All devices of the row are this process's own.
RunRow run_row_here(const TrainingTask& task, const TrainingFlags& flags,
                    const DevicePlacement& placement) {
  apply_threads_per_device(flags, placement.devices.size());
  warm_up(task, placement);
  RunRow row;
  row.placement = placement;
  row.threads_per_device = runtime::threads_per_device();
  nvml::ContentionProbe probe = watch(placement.devices);
  probe.sample();
  TrainingObserver observer;
  observer.on_epoch = [&probe](std::size_t, double, double) { probe.sample(); };
  observer.checks = Checks::on;
  trace::start();
  row.result = train(task, placement, observer);
  trace::stop();
  row.contended = probe.verdict();
  return row;
}

bool is_ddp(const DevicePlacement& placement) {
  return placement.mode == Mode::ddp;
}

bool has_processes(const TrainingFlags& flags, const DevicePlacement& placement) {
  return flags.ranks == "processes" && is_ddp(placement);
}

// The same row in another dtype: its weights after so many steps.
nn::StateDict weights_in(DType dtype, std::size_t num_steps, const TrainingTask& task,
                         const CompareFlags& flags, const DevicePlacement& placement) {
  if (has_processes(flags.training, placement)) {
    std::vector<std::string> words = flags.for_train;
    std::erase_if(words, [](const std::string& word) { return word.starts_with("--dtype"); });
    words.push_back(fmt::format("--dtype={}", lockstep::to_string(dtype)));
    const RunRow row = run_process_row(words, placement, task.batch, "");
    return num_steps == task.num_steps ? row.result.weights
                                       : to_state_dict(row.result.findings->first_weights);
  }
  apply_threads_per_device(flags.training, placement.devices.size());
  TrainingTask repeated = task;
  repeated.dtype = dtype;
  repeated.num_steps = num_steps;
  return train(repeated, placement).weights;
}

double difference_in(DType dtype, std::size_t num_steps, const TrainingTask& task,
                     const CompareFlags& flags, const DevicePlacement& single,
                     const DevicePlacement& placement) {
  return largest_difference(keep(weights_in(dtype, num_steps, task, flags, single)),
                            keep(weights_in(dtype, num_steps, task, flags, placement)))
      .value;
}

// Trains once in every way; prints a line as soon as it is known.
std::vector<RunRow> run_rows(const TrainingTask& task, const CompareFlags& flags,
                             const std::vector<DevicePlacement>& placements, std::FILE* out) {
  std::vector<RunRow> rows;
  fmt::print(out, "{}\n", table_header());
  for (const DevicePlacement& placement : placements) {
    // The timeline is that of the last row.
    const bool is_last = &placement == &placements.back();
    RunRow row = has_processes(flags.training, placement)
                     ? run_process_row(flags.for_train, placement, task.batch,
                                       is_last ? flags.training.trace_path : "")
                     : run_row_here(task, flags.training, placement);
    const RunRow& single = rows.empty() ? row : rows[0];
    row.max_abs_weight_diff = max_abs_difference(row.result.weights, single.result.weights);
    row.verdict = judge(task, single.result, row.result, [&](DType dtype, std::size_t num_steps) {
      return difference_in(dtype, num_steps, task, flags, placements[0], placement);
    });
    rows.push_back(std::move(row));
    fmt::print(out, "{}\n", table_line(rows.back(), rows[0]));
    std::fflush(out);
  }
  return rows;
}

// What a reader of the table has to know: devices that share cores, that have no rows, or that
// others used too.
std::vector<std::string> notes(const TrainingTask& task, const std::vector<RunRow>& rows) {
  std::vector<std::string> lines{sharing_note(rows)};
  for (const RunRow& row : rows) lines.push_back(idle_note(task, row.placement));
  for (const std::string& note : contention_notes(rows)) lines.push_back(note);
  std::vector<std::string> distinct;
  for (const std::string& line : lines) {
    if (!line.empty() && std::find(distinct.begin(), distinct.end(), line) == distinct.end()) {
      distinct.push_back(line);
    }
  }
  return distinct;
}

// Throws Error{Numeric}, with which the program exits 1, when a check of a row failed.
void require_right_rows(const std::vector<RunRow>& rows) {
  std::size_t num_wrong = 0;
  for (const RunRow& row : rows) num_wrong += row.verdict && !row.verdict->equal();
  for (const RunRow& row : rows) {
    if (!row.verdict || row.verdict->equal()) continue;
    fail(ErrorCode::Numeric, "compare", "{} on {} {} does not train as one device does: {}{}",
         to_string(row.placement.mode), row.placement.devices.size(),
         row.placement.devices.size() == 1 ? "device" : "devices", row.verdict->failure->text(),
         num_wrong == 1 ? "" : fmt::format("; {} rows are wrong", num_wrong));
  }
}

void print_verdict(const TrainingTask& task, const std::vector<RunRow>& rows, std::FILE* out) {
  if (task.sampler == Sampler::torch) {
    fmt::print(out, "weights: not compared; {}\n", torch_sampler_note(task));
    return;
  }
  std::vector<Verdict> verdicts;
  double drift = 0;
  for (const RunRow& row : rows) {
    verdicts.push_back(*row.verdict);
    drift = std::max(drift, row.max_abs_weight_diff);
  }
  for (const std::string& line : verdict_lines(task, verdicts, drift)) {
    fmt::print(out, "{}\n", line);
  }
}

// --explain-drift: all rows once more in float64, beside the drift that was found.
void explain_drift(const TrainingTask& task, const CompareFlags& flags,
                   const std::vector<RunRow>& rows, std::FILE* out) {
  fmt::print(out, "drift of the weights after {} steps, and what float64 gives:\n", task.num_steps);
  fmt::print(out, "{:<7}{:>8}{:>11}{:>11}\n", "mode", "devices", "float32", "float64");
  const KeptTensors single =
      keep(weights_in(DType::float64, task.num_steps, task, flags, rows[0].placement));
  std::vector<std::pair<double, double>> drifts;
  for (const RunRow& row : std::span(rows).subspan(1)) {
    const nn::StateDict weights =
        weights_in(DType::float64, task.num_steps, task, flags, row.placement);
    drifts.emplace_back(row.max_abs_weight_diff, largest_difference(single, keep(weights)).value);
    fmt::print(out, "{:<7}{:>8}{:>11.1e}{:>11.1e}\n", to_string(row.placement.mode),
               row.placement.devices.size(), drifts.back().first, drifts.back().second);
    std::fflush(out);
  }
  fmt::print(out, "{}\n", drift_sentence(drifts));
}

// Who the ranks are, and on which devices.
DeviceType resolve_ranks_and_type(TrainingFlags& flags) {
  const launch::RankEnvironment environment =
      launch::rank_environment(launch::current_environment());
  require(environment.world_size == 1, ErrorCode::Usage, "compare",
          "starts its ranks itself (--ranks processes); run it without a launcher, found {} ranks "
          "of {}",
          environment.world_size, to_string(environment.launcher));
  if (flags.bitwise && flags.comm.empty()) flags.comm = "own";
  resolve_ranks(flags, environment, std::nullopt);
  const DeviceType type = resolve_device_type(flags);
  require_linkable(flags, type);
  // Which GPUs the ranks have, and so by what they talk, each group finds out by itself.
  if (flags.comm.empty() && type == DeviceType::cpu) flags.comm = "own";
  return type;
}

// --explain-drift repeats float32 training; nothing else drifts.
void require_drift(const CompareFlags& flags) {
  if (!flags.explain_drift) return;
  const TrainingFlags& training = flags.training;
  const char* const reason = training.dtype != "float32" ? "--dtype is float64 already"
                             : training.bitwise          ? "under --bitwise nothing drifts"
                             : training.sampler != "exact"
                                 ? "under --sampler torch ddp trains on other numbers"
                                 : nullptr;
  require(reason == nullptr, ErrorCode::Usage, "--explain-drift",
          "repeats float32 training in float64, and {}; leave one out", reason ? reason : "");
}

void run_compare(CompareFlags flags, const CommandLine& command) {
  const TrainingFlags& training = flags.training;
  std::FILE* const out = training.json_path == "-" ? stderr : stdout;
  require_drift(flags);
  const DeviceType type = resolve_ranks_and_type(flags.training);
  const std::vector<std::size_t> counts = parse_device_counts(flags.device_counts);
  const std::vector<DevicePlacement> placements = list_placements(flags, type, counts);
  require(training.link.empty() || std::ranges::any_of(placements, is_ddp), ErrorCode::Usage,
          "--link", "is between the ranks of ddp, which --modes {} leaves out", flags.modes);
  const std::size_t most = *std::max_element(counts.begin(), counts.end());
  if (training.bitwise) {
    for (const std::size_t count : counts) make_task(training, count);
  }
  const TrainingTask task = make_task(training, most);
  for (const DevicePlacement& placement : placements) require_fitting_sampler(task, placement);
  const std::size_t cores = runtime::num_cores();
  const std::string where =
      type == DeviceType::cpu
          ? fmt::format("{} {}", cores, cores == 1 ? "core" : "cores")
          : fmt::format("{} logical devices on {}", runtime::num_devices(type),
                        runtime::physical_gpus().size() == 1
                            ? runtime::physical_gpus()[0].name
                            : fmt::format("{} GPUs", runtime::physical_gpus().size()));
  fmt::print(out, "using device: {} ({})\n", lockstep::to_string(type), where);
  fmt::print(out, "{} on {}: {} training rows, batch {}, {} epochs, {} steps\n", task.model,
             training.dataset, task.data->train.num_rows(), task.batch, task.num_epochs(),
             task.num_steps);
  if (!training.link.empty()) fmt::print(out, "{}\n", link_note(training));
  const std::vector<RunRow> rows = run_rows(task, flags, placements, out);
  for (const std::string& note : notes(task, rows)) fmt::print(out, "{}\n", note);
  if (!training.trace_path.empty()) {
    if (!has_processes(training, placements.back())) {
      write_trace(training, placements.back(), trace::collect());
    }
    fmt::print(stderr, "{}", describe_trace(training, placements.back()));
  }
  if (!training.json_path.empty()) {
    apply_threads_per_device(training, 1);
    const double optimizer_seconds =
        rows[0].result.breakdown ? rows[0].result.breakdown->optimizer : 0;
    nlohmann::ordered_json json =
        make_run_file(command, training, task, rows,
                      measure_workload(task, placements[0].devices[0], optimizer_seconds));
    json["config"]["modes"] = flags.modes;
    json["config"]["devices"] = counts;
    json["config"].erase("parallel");  // compare has --modes instead
    write_json(training.json_path, json);
  }
  require_right_rows(rows);
  print_verdict(task, rows, out);
  if (flags.explain_drift) explain_drift(task, flags, rows, out);
}

}  // namespace

void add_compare_command(Command& program, const CommandLine& command) {
  auto flags = std::make_shared<CompareFlags>();
  Command compare = program.add_command("compare", "Compare epoch times of one device, dp and ddp");
  add_training_flags(compare, flags->training);
  compare.add_option("--modes", flags->modes, "dp, ddp or dp,ddp");
  compare.add_option("--devices", flags->device_counts, "numbers of devices, such as 1,2,4,8");
  compare.add_flag("--explain-drift", flags->explain_drift,
                   "train once more in float64, to show that drift is rounding");
  compare.on_run([flags, compare, command] {
    flags->for_train = flags_for_train(compare.said_flags());
    run_compare(*flags, command);
  });
}

}  // namespace lockstep::tools
