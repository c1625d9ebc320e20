// lockstep compare: the same training in several ways, as a table of epoch times, with proof that
// every way computed the same weights.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <map>
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
#include "tools/compare_rows.h"
#include "tools/process_rows.h"
#include "tools/report/bound.h"
#include "tools/report/contention.h"
#include "tools/report/progress.h"
#include "tools/report/row_table.h"
#include "tools/report/run_file.h"
#include "tools/report/scaling.h"
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
  bool wide = false;
  bool explain_drift = false;
  std::vector<std::string> for_train;  // the same flags, for ranks that are processes
};

// A GPU's first steps load kernels and find the fastest products; no row's epochs should hold that.
void warm_up(TrainingTask task, const DevicePlacement& placement) {
  if (placement.devices[0].type != DeviceType::cuda) return;
  task.num_steps = std::min<std::size_t>(task.num_steps, 5);
  train(task, placement);
}

// All devices of the row are this process's own.
RunRow run_row_here(const PlannedRow& planned, const TrainingFlags& flags, Progress& progress) {
  const DevicePlacement& placement = planned.placement;
  apply_threads_per_device(flags, placement.devices.size());
  warm_up(planned.task, placement);
  RunRow row = planned_row(planned.task, placement);
  ContentionProbe probe(placement.devices);
  probe.sample();
  TrainingObserver observer;
  observer.on_epoch = [&probe](std::size_t, double, double) { probe.sample(); };
  observer.on_step = progress.observer();
  observer.checks = Checks::on;
  trace::start();
  row.result = train(planned.task, placement, observer);
  trace::stop();
  row.contended = probe.verdict(row.threads_per_device * placement.devices.size());
  return row;
}

bool is_ddp(const DevicePlacement& placement) {
  return placement.mode == Mode::ddp;
}

// One device of the kind that the row is on.
DevicePlacement single_placement(const PlannedRow& planned) {
  return {Mode::single, {Device{planned.placement.devices[0].type, 0}}};
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

RunRow run_row(const PlannedRow& planned, const CompareFlags& flags, const std::string& trace_path,
               Progress& progress) {
  if (!has_processes(flags.training, planned.placement)) {
    return run_row_here(planned, flags.training, progress);
  }
  const RunRow expected = planned_row(planned.task, planned.placement);
  RunRow row = run_process_row(flags.for_train, planned.placement, planned.task.batch, trace_path);
  row.batch = expected.batch;
  row.epoch_rows = expected.epoch_rows;
  return row;
}

// What one device makes of the batches of a row: its baseline where that has the same batch, else a
// run that no row shows, with all cores, since its time does not count.
class References {
 public:
  explicit References(const TrainingFlags& flags) : flags_(flags) {}

  void add(const RunRow& single) { results_[single.batch] = single.result; }

  const TrainingResult& result_for(const PlannedRow& planned) {
    const auto [found, is_new] = results_.try_emplace(planned.task.batch);
    if (is_new) {
      TrainingFlags all_cores = flags_;
      all_cores.threads_per_device.reset();
      apply_threads_per_device(all_cores, 1);
      TrainingObserver observer;
      observer.checks = Checks::on;
      found->second = train(planned.task, single_placement(planned), observer);
    }
    return found->second;
  }

 private:
  const TrainingFlags& flags_;
  std::map<std::size_t, TrainingResult> results_;  // by batch
};

Progress make_progress(const std::vector<PlannedRow>& plan, const TrainingFlags& flags) {
  std::vector<Progress::Row> rows;
  for (const PlannedRow& row : plan) {
    const std::string mode(to_string(row.placement.mode));
    const std::size_t num_devices = row.placement.devices.size();
    const double work = static_cast<double>(row.task.num_steps * row.task.batch);
    rows.push_back({num_devices == 1 ? mode : fmt::format("{} x{}", mode, num_devices),
                    has_processes(flags, row.placement) ? 0 : row.task.num_steps, work});
  }
  return Progress(std::move(rows));
}

void judge_row(const PlannedRow& planned, const TrainingResult& single, const CompareFlags& flags,
               RunRow& row) {
  row.max_abs_weight_diff = max_abs_difference(row.result.weights, single.weights);
  row.verdict = judge(planned.task, single, row.result, [&](DType dtype, std::size_t num_steps) {
    return difference_in(dtype, num_steps, planned.task, flags, single_placement(planned),
                         planned.placement);
  });
}

// Trains once in every way; prints a line as soon as it is known.
std::vector<RunRow> run_rows(const std::vector<PlannedRow>& plan, const CompareFlags& flags,
                             std::FILE* out) {
  const TableWidth width = flags.wide ? TableWidth::wide : TableWidth::terminal;
  References references(flags.training);
  Progress progress = make_progress(plan, flags.training);
  std::vector<RunRow> rows;
  fmt::print(out, "{}\n", table_header(width));
  for (const PlannedRow& planned : plan) {
    const bool is_single = planned.placement.mode == Mode::single;
    // The timeline is that of the last row.
    const bool is_last = &planned == &plan.back();
    if (is_single && planned.rows_per_device) {
      fmt::print(out, "{} rows a device\n", *planned.rows_per_device);
    }
    progress.begin_row();
    rows.push_back(run_row(planned, flags, is_last ? flags.training.trace_path : "", progress));
    if (is_single) references.add(rows.back());
    judge_row(planned, references.result_for(planned), flags, rows.back());
    progress.end_row();
    fmt::print(out, "{}\n", table_line(rows.back(), baseline_of(rows, rows.size() - 1), width));
    std::fflush(out);
  }
  return rows;
}

// What a reader of the table has to know: devices that share cores, that have no rows, or that
// others used too.
std::vector<std::string> notes(const std::vector<PlannedRow>& plan,
                               const std::vector<RunRow>& rows) {
  std::vector<std::string> lines{sharing_note(rows)};
  for (const PlannedRow& row : plan) lines.push_back(idle_note(row.task, row.placement));
  for (const std::string& note : contention_notes(rows)) lines.push_back(note);
  std::vector<std::string> distinct;
  for (const std::string& line : lines) {
    if (!line.empty() && std::find(distinct.begin(), distinct.end(), line) == distinct.end()) {
      distinct.push_back(line);
    }
  }
  return distinct;
}

// What bounds the run, the last thing that is said of it.
void print_sentence(const std::vector<PlannedRow>& plan, const std::vector<RunRow>& rows,
                    std::FILE* out) {
  std::string sentence;
  if (plan[0].rows_per_device) sentence = growth_sentence(rows, runtime::num_cores());
  if (sentence.empty()) sentence = bound_sentence(rows, runtime::num_cores());
  if (!sentence.empty()) fmt::print(out, "{}\n", wrap(sentence));
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
    fmt::print(out, "{}\n", wrap("weights: not compared; " + torch_sampler_note(task)));
    return;
  }
  std::vector<Verdict> verdicts;
  double drift = 0;
  for (const RunRow& row : rows) {
    verdicts.push_back(*row.verdict);
    drift = std::max(drift, row.max_abs_weight_diff);
  }
  for (const std::string& line : verdict_lines(task, verdicts, drift)) {
    fmt::print(out, "{}\n", wrap(line));
  }
}

// --explain-drift: all rows once more in float64, beside the drift that was found.
void explain_drift(const std::vector<PlannedRow>& plan, const CompareFlags& flags,
                   const std::vector<RunRow>& rows, std::FILE* out) {
  fmt::print(out, "drift of the weights after {} steps, and what float64 gives:\n",
             plan[0].task.num_steps);
  fmt::print(out, "{:<7}{:>8}{:>11}{:>11}\n", "mode", "devices", "float32", "float64");
  std::map<std::size_t, KeptTensors> singles;  // by batch
  std::vector<std::pair<double, double>> drifts;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto& [placement, task, rows_per_device] = plan[i];
    if (placement.mode == Mode::single) continue;
    const auto weights = [&](const DevicePlacement& on) {
      return keep(weights_in(DType::float64, task.num_steps, task, flags, on));
    };
    const auto [single, is_new] = singles.try_emplace(task.batch);
    if (is_new) single->second = weights(single_placement(plan[i]));
    drifts.emplace_back(rows[i].max_abs_weight_diff,
                        largest_difference(single->second, weights(placement)).value);
    fmt::print(out, "{:<7}{:>8}{:>11.1e}{:>11.1e}\n", to_string(placement.mode),
               placement.devices.size(), drifts.back().first, drifts.back().second);
    std::fflush(out);
  }
  fmt::print(out, "{}\n", wrap(drift_sentence(drifts)));
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

// "mlp:64-256-10 on digits: 1500 training rows, batch 64, 3 epochs, 72 steps".
std::string describe_work(const TrainingFlags& flags, const std::vector<PlannedRow>& plan) {
  const TrainingTask& task = plan[0].task;
  const std::size_t epochs = task.num_epochs();
  const std::string epochs_words = fmt::format("{} epoch{}", epochs, epochs == 1 ? "" : "s");
  const std::string steps_words = fmt::format("{} steps", task.num_steps);
  const std::string what = fmt::format("{} on {}: {} training rows", task.model, flags.dataset,
                                       task.data->train.num_rows());
  if (!plan[0].rows_per_device) {
    return fmt::format("{}, batch {}, {}, {}", what, task.batch, epochs_words, steps_words);
  }
  return fmt::format("{}, {}", what, flags.steps ? steps_words : epochs_words);
}

void run_compare(CompareFlags flags, const CommandLine& command) {
  const TrainingFlags& training = flags.training;
  std::FILE* const out = training.json_path == "-" ? stderr : stdout;
  require_drift(flags);
  const DeviceType type = resolve_ranks_and_type(flags.training);
  const std::vector<PlannedRow> plan = plan_rows(training, flags.modes, flags.device_counts, type);
  const auto has_ranks = [](const PlannedRow& row) { return is_ddp(row.placement); };
  require(training.link.empty() || std::ranges::any_of(plan, has_ranks), ErrorCode::Usage, "--link",
          "is between the ranks of ddp, which --modes {} leaves out", flags.modes);
  const TrainingTask& task = plan[0].task;
  const DevicePlacement& last = plan.back().placement;
  const std::size_t cores = runtime::num_cores();
  const std::string where =
      type == DeviceType::cpu
          ? fmt::format("{} {}", cores, cores == 1 ? "core" : "cores")
          : fmt::format("{} logical devices on {}", runtime::num_devices(type),
                        runtime::physical_gpus().size() == 1
                            ? runtime::physical_gpus()[0].name
                            : fmt::format("{} GPUs", runtime::physical_gpus().size()));
  fmt::print(out, "using device: {} ({})\n", lockstep::to_string(type), where);
  fmt::print(out, "{}\n", wrap(describe_work(training, plan)));
  if (!training.link.empty()) fmt::print(out, "{}\n", wrap(link_note(training)));
  const std::vector<RunRow> rows = run_rows(plan, flags, out);
  fmt::print(out, "{}\n", table_legend(rows[0]));
  for (const std::string& note : notes(plan, rows)) fmt::print(out, "{}\n", wrap(note));
  if (!training.trace_path.empty()) {
    if (!has_processes(training, last)) write_trace(training, last, trace::collect());
    fmt::print(stderr, "{}", describe_trace(training, last));
  }
  if (!training.json_path.empty()) {
    apply_threads_per_device(training, 1);
    const double optimizer_seconds =
        rows[0].result.breakdown ? rows[0].result.breakdown->optimizer : 0;
    nlohmann::ordered_json json =
        make_run_file(command, training, task, rows,
                      measure_workload(task, rows[0].placement.devices[0], optimizer_seconds));
    json["config"]["modes"] = flags.modes;
    json["config"]["devices"] = parse_list("--devices", flags.device_counts);
    json["config"].erase("parallel");  // compare has --modes instead
    write_json(training.json_path, json);
  }
  require_right_rows(rows);
  print_verdict(task, rows, out);
  if (flags.explain_drift) explain_drift(plan, flags, rows, out);
  print_sentence(plan, rows, out);
}

}  // namespace

void add_compare_command(Command& program, const CommandLine& command) {
  auto flags = std::make_shared<CompareFlags>();
  Command compare = program.add_command("compare", "Compare epoch times of one device, dp and ddp");
  add_training_flags(compare, flags->training);
  compare.add_option("--modes", flags->modes, "dp, ddp or dp,ddp");
  compare.add_option("--devices", flags->device_counts, "numbers of devices, such as 1,2,4,8");
  compare.add_flag("--wide", flags->wide, "all columns, beyond the 80 of a terminal");
  compare.add_flag("--explain-drift", flags->explain_drift,
                   "train once more in float64, to show that drift is rounding");
  compare.on_run([flags, compare, command] {
    flags->for_train = flags_for_train(compare.said_flags());
    run_compare(*flags, command);
  });
}

}  // namespace lockstep::tools
