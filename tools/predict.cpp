// lockstep predict: epoch times on devices that are not here, from a run's workload or from the
// 1-device rows of published tables.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "engine/core/error.h"
#include "simulate/predict/kernel_cost.h"
#include "tools/cli/numbers.h"
#include "tools/cli/output_path.h"
#include "tools/commands.h"
#include "tools/prediction/predicted_rows.h"
#include "tools/prediction/prediction_report.h"
#include "tools/report/file_head.h"
#include "tools/report/row_table.h"
#include "tools/report/run_file.h"
#include "tools/report/work_line.h"
#include "tools/report/workload.h"

namespace lockstep::tools {
namespace {

constexpr double kMaxBucketMib = 1e6;

struct PredictFlags {
  std::string table, models, workload, topology, json_path, trace_path;
  std::string devices = "1,2,4,8";
  std::vector<std::string> strategies;  // empty: ddp, and dp where one host has the devices
  std::vector<std::string> what_if;
  std::string plan;
  std::string ranks = "threads";
  std::string input = "ready";
  double bucket_mib = 25;
  double first_bucket_mib = 1;
};

template <typename Predictions>
void report_table(const PredictFlags& flags, const CommandLine& command,
                  const Predictions& predictions) {
  require(!predictions.empty(), ErrorCode::Io, "predict",
          "'{}', line 1: the table has no row to predict", flags.table);
  print_predictions(predictions, flags.json_path == "-" ? stderr : stdout);
  if (flags.json_path.empty()) return;
  nlohmann::ordered_json json = file_head("lockstep.prediction/1", command);
  json["rows"] = rows_json(predictions);
  write_json(flags.json_path, json);
}

void predict_table(const PredictFlags& flags, const CommandLine& command) {
  const CsvTable table(flags.table);
  if (table.has_column("algorithm")) {
    return report_table(flags, command, predict_all_reduces(table));
  }
  require(!flags.models.empty(), ErrorCode::Usage, "--table",
          "a scaling table needs --models MODELS.csv, with the nets' parameters");
  report_table(flags, command, predict_scaling(table, read_models(flags.models)));
}

PredictionTask read_task(const PredictFlags& flags) {
  require(!flags.topology.empty(), ErrorCode::Usage, "--workload", "needs --topology NAME or FILE");
  PredictionTask task;
  task.devices = parse_list("--devices", flags.devices);
  task.bucket_mib = require_positive("--bucket-mib", flags.bucket_mib);
  task.first_bucket_mib = require_positive("--first-bucket-mib", flags.first_bucket_mib);
  require(task.bucket_mib <= kMaxBucketMib, ErrorCode::Usage, "--bucket-mib",
          "at most {}, found {}", kMaxBucketMib, task.bucket_mib);
  for (const std::string& name : flags.strategies) {
    task.strategies.push_back(predict::parse_strategy(name));
  }
  if (!flags.plan.empty()) task.own_plan = plan::parse_all_reduce_plan(flags.plan);
  task.topology = predict::find_topology(flags.topology);
  task.ranks = predict::parse_rank_kind(flags.ranks).value();
  task.input = flags.input == "host" ? predict::StepOptions::Input::from_host
                                     : predict::StepOptions::Input::ready;
  task.run = read_run_workload(flags.workload);
  if (task.strategies.empty()) {
    const bool fits_a_host =
        *std::ranges::max_element(task.devices) <= task.topology.gpus_per_host();
    if (fits_a_host) task.strategies.push_back(predict::Strategy::data_parallel);
    task.strategies.push_back(predict::Strategy::ddp);
  }
  return task;
}

// Where the times of kernels are from.
std::string source_of_compute(const PredictionTask& task) {
  const predict::DeviceProfile& device = task.topology.device;
  if (is_measured_on(task.run, device)) {
    return fmt::format("as measured on {}, scaled with the rows", task.run.measured_on);
  }
  if (device.measured) {
    return fmt::format("layers as calibrate measured them there, not the run's own on {}",
                       task.run.measured_on);
  }
  return fmt::format(
      "{:.0f} % of {:.1f} TFLOP/s, {:.0f} % of {:.0f} GB/s and {:.0f} us a kernel, not what was "
      "measured on {}",
      100 * predict::kArithmeticEfficiency, device.flops_per_second / 1e12,
      100 * predict::kTrafficEfficiency, device.memory_bytes_per_second / 1e9,
      device.launch_seconds * 1e6, task.run.measured_on);
}

void print_head(const PredictionTask& task, std::FILE* out) {
  fmt::print(out, "{}\n",
             wrap(fmt::format("predicted, not measured: {} on {} ({})", task.run.model,
                              task.topology.name, task.topology.device.name)));
  fmt::print(out, "{}\n\n", wrap("compute: " + source_of_compute(task)));
}

// dp has no rows on several hosts; who asks for it there gets an error.
void print_left_out(const PredictFlags& flags, const PredictionTask& task, std::FILE* out) {
  if (!flags.strategies.empty() || task.strategies.size() > 1) return;
  fmt::print(out, "{}\n\n",
             wrap(fmt::format("without dp: it is one process, and a host has {} devices",
                              task.topology.gpus_per_host())));
}

// config of the run file: every flag, resolved.
nlohmann::ordered_json config_json(const PredictFlags& flags, const PredictionTask& task,
                                   const std::vector<WhatIf>& changes) {
  nlohmann::ordered_json json{{"topology", task.topology.name},
                              {"strategies", nlohmann::ordered_json::array()},
                              {"model", task.run.model},
                              {"dataset", task.run.dataset},
                              {"batch", task.run.step.batch},
                              {"devices", task.devices},
                              {"input", flags.input},
                              {"bucket_mib", task.bucket_mib},
                              {"first_bucket_mib", task.first_bucket_mib},
                              {"what_if", nlohmann::ordered_json::array()},
                              {"trace", nullptr}};
  for (const predict::Strategy strategy : task.strategies) {
    json["strategies"].push_back(predict::to_string(strategy));
  }
  for (const WhatIf& change : changes) {
    if (!change.text.empty()) json["what_if"].push_back(change.text);
  }
  if (!flags.plan.empty()) json["plan"] = flags.plan;
  if (task.topology.device.measured) json["ranks"] = flags.ranks;
  if (!flags.trace_path.empty()) json["trace"] = flags.trace_path;
  return json;
}

void print_group_head(const PredictionTask& task, const WhatIf& change, std::FILE* out) {
  if (!change.text.empty()) fmt::print(out, "what if {}\n", change.text);
  const std::vector<std::size_t> idle = devices_without_rows(task, change);
  if (idle.empty()) return;
  fmt::print(out, "{}\n",
             wrap(fmt::format("without {} devices: a step has {} rows", fmt::join(idle, ", "),
                              batch_of(task, change))));
}

void predict_workload(const PredictFlags& flags, const CommandLine& command) {
  const PredictionTask task = read_task(flags);
  std::vector<WhatIf> changes{WhatIf{}};
  for (const std::string& word : flags.what_if) {
    for (const WhatIf& change : parse_what_if(word)) changes.push_back(change);
  }
  require_possible(task, changes);
  std::FILE* const out = flags.json_path == "-" ? stderr : stdout;
  print_head(task, out);
  print_left_out(flags, task, out);
  fmt::print(out, "{}\n", predicted_header());
  std::vector<PredictedRow> rows;
  for (const WhatIf& change : changes) {
    print_group_head(task, change, out);
    for (PredictedRow& row : predict_rows(task, change)) {
      fmt::print(out, "{}\n", predicted_line(row));
      rows.push_back(std::move(row));
    }
  }
  fmt::print(out, "{}\n",
             wrap(fmt::format("baseline: single, 1 predicted device; epoch: {} rows, {}; band: how "
                              "far the step lies off with better or worse links, latencies, "
                              "launches and stragglers (docs/prediction.md)",
                              task.run.rows_per_epoch,
                              task.run.epoch == RunWorkload::Epoch::data_set
                                  ? "the data set's"
                                  : "what the run trained on in one (its file does not say how "
                                    "many the data set has)")));
  if (!flags.trace_path.empty()) save_predicted_trace(flags.trace_path, rows.back());
  if (flags.json_path.empty()) return;
  nlohmann::ordered_json json = file_head("lockstep.run/1", command);
  json["config"] = config_json(flags, task, changes);
  json["rows"] = nlohmann::ordered_json::array();
  for (const PredictedRow& row : rows) json["rows"].push_back(row_json(row, task.topology.name));
  json["workload"] = workload_json(task.run.step);
  write_json(flags.json_path, json);
}

void run_predict(const PredictFlags& flags, const CommandLine& command) {
  require(flags.table.empty() != flags.workload.empty(), ErrorCode::Usage, "predict",
          "give either --table FILE.csv or --workload RUN.json");
  require_writable({{"--json", flags.json_path}, {"--trace", flags.trace_path}});
  flags.table.empty() ? predict_workload(flags, command) : predict_table(flags, command);
}

}  // namespace

void add_predict_command(Command& program, const CommandLine& command) {
  auto flags = std::make_shared<PredictFlags>();
  Command predict =
      program.add_command("predict", "Predict epoch times on devices that are not here");
  const Flag workload = predict.add_option(
      "--workload", flags->workload, "a run file of train or compare: its workload is predicted");
  predict.add_option("--topology", flags->topology, "a preset, a JSON file, or NAME*HOSTS@100gbe")
      .needs(workload);
  predict.add_option("--devices", flags->devices, "numbers of devices, such as 1,2,4,8")
      .needs(workload);
  predict
      .add_option(
          "--strategy", flags->strategies,
          "dp, ddp, hierarchical, zero1, zero3, pipeline, device_allreduce, nccl_replicated, "
          "cpu_reduce, cpu_parameter_server; else dp (where one host has all devices) and ddp")
      .separated_by(',')
      .needs(workload);
  predict
      .add_option("--plan", flags->plan,
                  "of ddp: the engine's own all-reduce plan; without it NCCL's model")
      .needs(workload);
  predict
      .add_option("--ranks", flags->ranks,
                  "of ddp on a machine that calibrate measured: threads or processes")
      .one_of({"threads", "processes"})
      .needs(workload);
  predict
      .add_option("--input", flags->input,
                  "ready: batches are on their devices; host: they are sent there from its memory")
      .one_of({"ready", "host"})
      .needs(workload);
  predict.add_option("--bucket-mib", flags->bucket_mib, "size of a gradient bucket")
      .needs(workload);
  predict.add_option("--first-bucket-mib", flags->first_bucket_mib, "size of the first one")
      .needs(workload);
  predict
      .add_option("--what-if", flags->what_if,
                  "bucket_mib=1,25,100 or bandwidth=2x or batch=64,256: more rows")
      .needs(workload);
  predict.add_option("--trace", flags->trace_path, "the last row's step, for ui.perfetto.dev")
      .needs(workload);
  const Flag table = predict.add_option(
      "--table", flags->table, "a published table: predicted from its 1-device rows, beside it");
  table.excludes(workload);
  predict.add_option("--models", flags->models, "the nets of --table").needs(table);
  predict.add_option("--json", flags->json_path, "write the rows to a file, '-' is stdout");
  predict.footer(fmt::format("topologies: {}", fmt::join(predict::preset_names(), ", ")));
  predict.on_run([flags, command] { run_predict(*flags, command); });
}

}  // namespace lockstep::tools
