// lockstep compare: the same training in several ways, as a table of epoch times, with proof that
// every way computed the same weights.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "engine/core/error.h"
#include "engine/launch/rank_environment.h"
#include "engine/runtime/logical_device.h"
#include "engine/runtime/physical_gpus.h"
#include "engine/trace/breakdown.h"
#include "engine/trace/recorder.h"
#include "tools/commands/commands.h"
#include "tools/commands/compare_rows.h"
#include "tools/commands/process_rows.h"
#include "tools/flags/command_line.h"
#include "tools/flags/help.h"
#include "tools/flags/numbers.h"
#include "tools/flags/training_flags.h"
#include "tools/record/contention.h"
#include "tools/record/host_info.h"
#include "tools/record/run_file.h"
#include "tools/run/interruption.h"
#include "tools/run/pipeline.h"
#include "tools/run/placement.h"
#include "tools/run/settings.h"
#include "tools/run/slow_motion.h"
#include "tools/run/step_statistics.h"
#include "tools/run/trace_file.h"
#include "tools/run/workload.h"
#include "tools/show/explain.h"
#include "tools/show/row_table.h"
#include "tools/text/format.h"

namespace lockstep::tools {
namespace {

// Notes below the table: devices that share cores, that get no rows, or that other processes used.
std::vector<std::string> notes(const std::vector<PlannedRow>& plan,
                               const std::vector<RunRow>& rows) {
  std::vector<std::string> lines{factor_note(rows), sharing_note(rows)};
  for (const PlannedRow& row : plan) lines.push_back(idle_note(row.task, row.placement));
  for (const std::string& note : efficiency_notes(rows)) lines.push_back(note);
  for (const std::string& note : contention_notes(rows)) lines.push_back(note);
  std::vector<std::string> distinct;
  for (const std::string& line : lines) {
    if (std::ranges::find(distinct, line) == distinct.end()) distinct.push_back(line);
  }
  return distinct;
}

// Throws Error{Numeric}, so that the program exits with 1, if a check of a row failed.
void require_right_rows(const std::vector<const RunRow*>& rows) {
  std::size_t num_wrong = 0;
  for (const RunRow* row : rows) num_wrong += row->verdict && row->verdict->failure;
  for (const RunRow* judged : rows) {
    const RunRow& row = *judged;
    if (!row.verdict || row.verdict->equal()) continue;
    const std::string name = fmt::format(
        "{} on {}{}", row.mode, count_text(row.devices, "device"),
        row.resumed_after ? fmt::format(", resumed after step {},", *row.resumed_after) : "");
    fail(ErrorCode::Numeric, "compare", "{} does not train as {}: {}{}", name,
         row.is_single() ? "the formulas say" : "one device does", row.verdict->failure->text(),
         num_wrong == 1 ? "" : fmt::format("; {} rows are wrong", num_wrong));
  }
}

void print_verdict(const TrainingTask& task, const std::vector<const RunRow*>& rows,
                   std::FILE* out) {
  if (task.sampler == Sampler::torch) {
    print_wrapped(out, "weights: not compared; " + torch_sampler_note(task));
    return;
  }
  std::vector<Verdict> verdicts;
  for (const RunRow* row : rows) verdicts.push_back(*row->verdict);
  for (const std::string& line : verdict_lines(task, verdicts)) {
    print_wrapped(out, line);
  }
}

bool has_pipeline(const CompareFlags& flags) {
  return std::ranges::count(flags.modes, "pipeline") > 0;
}

// Settles who the ranks are, and returns the type of their devices.
DeviceType resolve_ranks_and_type(CompareFlags& of_compare) {
  TrainingFlags& flags = of_compare.training;
  const launch::RankEnvironment environment =
      launch::rank_environment(launch::current_environment());
  require(environment.world_size == 1, ErrorCode::Usage, "compare",
          "starts its ranks itself (--ranks processes); run it without a launcher, found {} ranks "
          "of {}",
          environment.world_size, to_string(environment.launcher));
  if ((flags.bitwise || has_pipeline(of_compare)) && flags.comm.empty()) flags.comm = "own";
  resolve_ranks(flags, environment, std::nullopt);
  const DeviceType type = resolve_device_type(flags);
  require_linkable(flags, type);
  // Each group finds out by itself which GPUs its ranks have, and so how they talk.
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
                                 ? "under --sampler torch ddp trains on other rows"
                                 : nullptr;
  require(reason == nullptr, ErrorCode::Usage, "--explain-drift",
          "repeats float32 training in float64, and {}; leave one out", reason ? reason : "");
}

// "mlp:64-256-10 on digits: 1500 training rows, batch 64, 3 epochs, 72 steps".
std::string describe_work(const TrainingFlags& flags, const std::vector<PlannedRow>& plan) {
  const TrainingTask& task = plan[0].task;
  const std::string epochs = count_text(task.num_epochs(), "epoch");
  const std::string steps = count_text(task.num_steps, "step");
  const std::string what = fmt::format("{} on {}: {}", task.model, flags.dataset,
                                       count_text(task.data->train.num_rows(), "training row"));
  if (!plan[0].rows_per_device) {
    return fmt::format("{}, {}, {}, {}", what, batch_text(task), epochs, steps);
  }
  return fmt::format("{}, {}", what, flags.steps ? steps : epochs);
}

// The workload's layers are measured on the device type that this command compares.
PredictionTask measured_by(PredictionTask prediction, const RunRow& single) {
  if (single.result.simulated) return prediction;
  prediction.run.measured_on = single.is_on_cores
                                   ? device_name(cpu_name(), single.threads_per_device)
                                   : runtime::physical_gpus()[0].name;
  return prediction;
}

// After a signal: says what was done and written. Returns the exit code.
int end_compare(const CompareFlags& flags, std::size_t num_done, std::size_t num_planned) {
  const int signal = Interruption::signal();
  if (signal == 0) return 0;
  const std::string& path = flags.training.json_path;
  return say_interrupted(signal, fmt::format("{} of {} rows", num_done, num_planned),
                         num_done == 0 ? ""
                         : path == "-" ? "the run file"
                                       : path);
}

void require_fitting_flags(const CompareFlags& flags) {
  require_drift(flags);
  require(!flags.interrupt || flags.training.act_as.empty(), ErrorCode::Usage, "--interrupt",
          "resumes a row at full speed, and --act-as slows it down; leave one out");
  require(!flags.is_predicting || flags.training.accumulate == 1, ErrorCode::Usage, "--predict",
          "predicts steps of one backward pass, and --accumulate takes several; leave one out");
  require(!flags.is_predicting || std::ranges::count(flags.modes, "tensor") == 0, ErrorCode::Usage,
          "--predict", "does not predict the mode tensor; leave one out");
}

// All rows, also those that can only be predicted. Settles flags that depend on all of them.
std::vector<PlannedRow> plan_all_rows(CompareFlags& flags, DeviceType type) {
  TrainingFlags& training = flags.training;
  const std::size_t most = most_devices(flags.device_counts);
  // A device has the same size in every row, so that a second one shows what a second one brings.
  if (type == DeviceType::cpu && training.act_as.empty()) {
    training.threads_per_device = static_cast<int>(threads_per_device(training, most));
  }
  if (has_pipeline(flags) && training.model.empty()) {
    training.model = default_pipeline_model(training, most);
  }
  return plan_rows(
      training, flags.modes, flags.device_counts, type,
      flags.is_predicting ? MissingDevices::are_predicted : MissingDevices::are_an_error);
}

void print_beginning(const TrainingFlags& flags, const std::vector<PlannedRow>& plan,
                     DeviceType type, std::FILE* out) {
  const std::size_t num_gpus = runtime::physical_gpus().size();
  const auto num_devices = static_cast<std::size_t>(runtime::num_devices(type));
  const std::string where = type == DeviceType::cpu
                                ? count_text(runtime::num_cores(), "core")
                                : fmt::format("{} on {}", count_text(num_devices, "logical device"),
                                              num_gpus == 1 ? runtime::physical_gpus()[0].name
                                                            : count_text(num_gpus, "GPU"));
  fmt::print(out, "using device: {} ({})\n", lockstep::to_string(type), where);
  print_wrapped(out, describe_work(flags, plan));
  print_wrapped(out, link_note(flags));
  print_wrapped(out, slow_motion_note(plan[0].task));
}

std::vector<PredictedRow> predict_and_print(const PredictionTask& prediction,
                                            const FileWorkload& workload,
                                            const std::vector<PlannedRow>& plan, std::FILE* out) {
  std::vector<PredictedRow> rows = predict_compared_rows(prediction, workload, plan, out);
  fmt::print(out, "~: predicted for {} ({}), not measured\n", prediction.topology.name,
             prediction.topology.device.name);
  for (const std::string& note : record_notes(rows)) print_wrapped(out, note);
  return rows;
}

nlohmann::ordered_json compare_config(const CompareFlags& flags, const TrainingTask& task) {
  nlohmann::ordered_json config = flags_json(flags.training, task);
  config["modes"] = fmt::format("{}", fmt::join(flags.modes, ","));
  config["devices"] = parse_list("--devices", flags.device_counts);
  const std::string& rows = flags.training.per_device_batch;
  if (!rows.empty()) config["per_device_batch"] = parse_list("--per-device-batch", rows);
  config.erase("parallel");  // compare has --modes instead
  return config;
}

// Says below the table if the rows are right, and what limits them. Returns the exit code.
int judge_and_explain(const CompareFlags& flags, const std::vector<PlannedRow>& plan,
                      const MeasuredRows& measured, std::FILE* out) {
  const std::vector<RunRow>& rows = measured.rows;
  std::vector<const RunRow*> judged;
  for (const RunRow& row : rows) judged.push_back(&row);
  if (measured.resumed) judged.push_back(&*measured.resumed);
  require_right_rows(judged);
  print_verdict(plan[0].task, judged, out);
  try {
    if (flags.explain_drift && rows.size() == plan.size()) {
      explain_drift(plan, flags.training, rows, out);
    }
  } catch (const Interrupted&) {
    return end_compare(flags, rows.size(), plan.size());
  }
  RunFile file;
  file.rows = rows;
  file.host.cores = runtime::num_cores();
  print_wrapped(out, limit_sentence(file));
  return end_compare(flags, rows.size(), plan.size());
}

// Returns the exit code.
int run_compare(CompareFlags flags, const CommandLine& command) {
  const TrainingFlags& training = flags.training;
  std::FILE* const out = training.json_path == "-" ? stderr : stdout;
  require_fitting_flags(flags);
  const DeviceType type = resolve_ranks_and_type(flags);
  const std::vector<PlannedRow> all_rows = plan_all_rows(flags, type);
  std::vector<PlannedRow> plan;
  std::ranges::copy_if(all_rows, std::back_inserter(plan),
                       [](const PlannedRow& row) { return !row.is_missing; });
  std::vector<Mode> modes;
  for (const PlannedRow& row : plan) modes.push_back(row.placement.mode);
  reject_idle_flags(training, modes, type);
  const TrainingTask& task = plan[0].task;
  const std::optional<PredictionTask> prediction = read_prediction(flags, all_rows);
  print_beginning(training, plan, type, out);
  const Interruption interruption("this step");
  const MeasuredRows measured = measure_rows(plan, flags, out);
  const std::vector<RunRow>& rows = measured.rows;
  if (rows.empty()) return end_compare(flags, 0, plan.size());
  const bool is_complete = rows.size() == plan.size();
  FileWorkload workload;
  if (!training.json_path.empty() || prediction) {
    apply_threads_per_device(training, 1);
    workload = measure_workload(task, plan[0].placement.devices[0],
                                rows[0].result.breakdown ? rows[0].result.breakdown->optimizer : 0);
  }
  std::vector<PredictedRow> predicted;
  if (prediction && is_complete) {
    predicted = predict_and_print(measured_by(*prediction, rows[0]), workload, all_rows, out);
  }
  fmt::print(out, "{}\n", table_legend(rows[0]));
  for (const std::string& note : notes(plan, rows)) print_wrapped(out, note);
  if (!training.trace_path.empty() && is_complete) {
    const DevicePlacement& last = plan.back().placement;
    if (!has_processes(training, last)) write_trace(training, last, trace::collect());
    fmt::print(stderr, "{}", describe_trace(training));
  }
  nlohmann::ordered_json json = make_run_file(command, compare_config(flags, task), rows);
  if (!training.json_path.empty()) {
    json["workload"] = workload_json(workload);
    for (const PredictedRow& row : predicted) {
      json["rows"].push_back(row_json(row, prediction->topology));
    }
    if (measured.resumed) json["resumed"] = resumed_json(*measured.resumed);
    if (!is_complete) {
      mark_interrupted(json, Interruption::signal(), "rows", rows.size(), plan.size());
    }
    write_json(training.json_path, json);
  }
  return judge_and_explain(flags, plan, measured, out);
}

}  // namespace

void add_compare_command(CLI::App& program, const CommandLine& command, int& exit_code) {
  auto flags = std::make_shared<CompareFlags>();
  CLI::App& compare = *program.add_subcommand(
      "compare", "Train on one device and on several, compare the times, and check the weights");
  add_compare_flags(compare, flags->training);
  group_flags(compare,
              training_groups({"--model", "--dataset", "--epochs", "--steps", "--batch", "--modes",
                               "--devices", "--threads-per-device", "--predict", "--json"}));
  add_option(compare, "--modes", flags->modes, "MODES",
             "ways to train on several devices: dp (PyTorch's DataParallel), ddp (its "
             "DistributedDataParallel), pipeline, zero1, zero2, zero3, tensor")
      ->delimiter(',')
      ->check(one_of({"dp", "ddp", "pipeline", "zero1", "zero2", "zero3", "tensor"}));
  add_option(compare, "--devices", flags->device_counts, "COUNTS",
             "numbers of devices, a row for each");
  compare.add_flag("--interrupt", flags->interrupt,
                   "stop the last row after a third, resume it in a new process, and judge that");
  compare.add_flag("--wide", flags->wide, "print all columns, wider than 80 characters");
  CLI::Option* const predict =
      compare.add_option("--predict", flags->predict,
                         "add rows that are predicted for this topology, or for that of --act-as");
  predict->expected(0, 1)->default_str("")->type_name("TOPOLOGY");
  compare.add_flag("--explain-drift", flags->explain_drift,
                   "repeat every row in float64, which shows that drift is rounding");
  compare.callback([flags, &compare, command, &exit_code] {
    flags->training.given = given_flags(compare);
    resolve_pipeline_flags(flags->training);
    flags->is_predicting = compare.count("--predict") > 0;
    exit_code = run_compare(*flags, command);
  });
}

}  // namespace lockstep::tools
