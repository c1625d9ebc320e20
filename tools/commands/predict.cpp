// lockstep predict: predicts step and epoch times on other devices, from a run's workload or from
// the size of a net and its step on one device; and times of all-reduces.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "engine/core/error.h"
#include "engine/core/files.h"
#include "engine/core/text.h"
#include "simulate/predict/kernel_cost.h"
#include "tools/commands/commands.h"
#include "tools/flags/command_line.h"
#include "tools/flags/help.h"
#include "tools/flags/numbers.h"
#include "tools/flags/output_path.h"
#include "tools/record/host_info.h"
#include "tools/record/run_file.h"
#include "tools/run/workload.h"
#include "tools/show/page.h"
#include "tools/text/format.h"
#include "tools/whatif/advice.h"
#include "tools/whatif/family.h"
#include "tools/whatif/memory_rows.h"
#include "tools/whatif/predicted_rows.h"
#include "tools/whatif/trace_net.h"

namespace lockstep::tools {
namespace {

constexpr std::size_t kNetSamples = 1'000'000;  // samples per epoch if no data set is known
constexpr int kMaxBatch = 1'000'000'000;
constexpr double kMaxStepSeconds = 1e6;

struct PredictFlags {
  std::string workload, params, model, family,
      all_reduce;  // what is predicted: a run, a net, an all-reduce
  std::string recompute = "attention", optimizer = "adam";
  std::optional<int> rows;  // of an epoch
  std::string find;
  bool how = false;
  std::string flops, precision;
  std::string from_trace;
  std::optional<double> step, host_ms;
  std::optional<int> batch_per_gpu;
  std::string topology, json_path, trace_path, html_path;
  std::string devices = "1,2,4,8";
  std::vector<std::string> strategies;  // empty: ddp, and dp if one host has the devices
  std::vector<std::string> what_if;
  std::string plan;
  std::string pipeline_schedule = "gpipe";
  std::optional<int> micro_batches;
  std::string schedule;  // refused: it is the learning rate's in train
  std::string overlap = "on";
  int accumulate = 1;
  bool no_sync = false;
  double bucket_mib = 25;
  double first_bucket_mib = 1;
};

// "25.6M" as 25.6e6: decimal, unlike sizes in bytes.
double parse_count(std::string_view flag, const std::string& text) {
  double number = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  const std::string_view unit(stop, static_cast<std::size_t>(end - stop));
  double factor = 0;
  for (const auto& [letters, value] : std::initializer_list<std::pair<std::string_view, double>>{
           {"", 1}, {"K", 1e3}, {"M", 1e6}, {"G", 1e9}, {"B", 1e9}, {"T", 1e12}}) {
    if (unit == letters) factor = value;
  }
  number *= factor;
  require(error == std::errc{} && std::isfinite(number) && number >= 1, ErrorCode::Usage, flag,
          "expected a number such as 25.6M or 1.5G, found '{}'", text);
  return number;
}

std::vector<std::size_t> read_devices(const PredictFlags& flags,
                                      const predict::Topology& topology) {
  const std::vector<std::size_t> devices = parse_list("--devices", flags.devices);
  for (const std::size_t count : devices) {
    require(count >= 1, ErrorCode::Usage, "--devices", "must be at least 1, found 0");
    require(count <= topology.gpus.size(), ErrorCode::Usage, "--devices",
            "'{}' has {} devices, {} were asked for; a cluster is NAME*HOSTS@100gbe", topology.name,
            topology.gpus.size(), count);
  }
  return devices;
}

Precision read_precision(const PredictFlags& flags) {
  return flags.precision == "bf16"   ? Precision::bf16
         : flags.precision == "tf32" ? Precision::tf32
                                     : Precision::fp32;
}

predict::Recompute read_recompute(const PredictFlags& flags) {
  return flags.recompute == "none"   ? predict::Recompute::none
         : flags.recompute == "full" ? predict::Recompute::full
                                     : predict::Recompute::attention;
}

Net read_net(const PredictFlags& flags, const predict::DeviceProfile& device) {
  Net net;
  if (!flags.model.empty()) net = find_net(flags.model);
  if (!flags.family.empty()) net = find_family(flags.family, read_recompute(flags));
  if (!flags.params.empty()) {
    net.parameters = parse_count("--params", flags.params);
    if (net.memory) net.memory->parameters = net.parameters;
  }
  if (!flags.flops.empty()) net.forward_flops = parse_count("--flops", flags.flops);
  if (net.name.empty()) net.name = flags.params + " parameters";
  require(flags.batch_per_gpu.has_value(), ErrorCode::Usage, "--batch-per-gpu",
          "say how many samples of a step each GPU takes, such as --batch-per-gpu 64");
  require(*flags.batch_per_gpu >= 1 && *flags.batch_per_gpu <= kMaxBatch, ErrorCode::Usage,
          "--batch-per-gpu", "must be from 1 to {}, found {}", kMaxBatch, *flags.batch_per_gpu);
  net.batch_per_gpu = static_cast<std::size_t>(*flags.batch_per_gpu);
  if (flags.step) net.step_seconds = require_positive("--step", *flags.step);
  net.precision = read_precision(flags);
  require(net.step_seconds || net.forward_flops > 0, ErrorCode::Usage, "--step",
          "say how many seconds a step takes on one GPU, or give --model or --flops to guess it");
  const double step = *with_step(net, device).step_seconds;
  require(step <= kMaxStepSeconds, ErrorCode::Usage, "--step",
          "a step on one GPU takes at most {} s, found {:.3g}", kMaxStepSeconds, step);
  return net;
}

// The trace's net, in the buckets that it had unless flags say otherwise.
void read_trace(const PredictFlags& flags, PredictionTask& task) {
  TraceNet found = net_of_trace(break_down(read_rank_trace(flags.from_trace)), task.topology.device,
                                read_precision(flags));
  if (!flags.params.empty()) found.net.parameters = parse_count("--params", flags.params);
  require(found.net.parameters > 0, ErrorCode::Usage, "--from-trace",
          "'{}' sends no gradients; say how many parameters the net has, as in --params 25.6M",
          shown(flags.from_trace));
  if (flags.batch_per_gpu) {
    found.net.batch_per_gpu =
        static_cast<std::size_t>(require_positive("--batch-per-gpu", *flags.batch_per_gpu));
  }
  if (found.smallest_bucket_mib > 0) {
    task.bucket_mib = std::min(task.bucket_mib, found.smallest_bucket_mib);
    task.first_bucket_mib = std::min(task.first_bucket_mib, task.bucket_mib);
  }
  task.net = std::move(found.net);
}

PredictionTask read_task(const PredictFlags& flags) {
  PredictionTask task;
  mib_to_bytes("--bucket-mib", flags.bucket_mib);  // these two throw for what is no size
  mib_to_bytes("--first-bucket-mib", flags.first_bucket_mib);
  task.bucket_mib = flags.bucket_mib;
  task.first_bucket_mib = flags.first_bucket_mib;
  if (flags.overlap == "off") task.overlap = predict::StepOptions::Overlap::off;
  if (flags.no_sync) task.reduced = predict::StepOptions::Reduced::with_last;
  task.accumulate = require_positive("--accumulate", flags.accumulate);
  for (const std::string& name : flags.strategies) {
    task.strategies.push_back(predict::parse_strategy(name));
  }
  task.schedule = plan::parse_pipeline_schedule(flags.pipeline_schedule);
  if (task.schedule == plan::PipelineSchedule::interleaved) task.chunks = 2;
  if (flags.micro_batches) {
    task.micro_batches = require_positive("--micro-batches", *flags.micro_batches);
  }
  if (!flags.plan.empty()) task.own_plan = plan::parse_all_reduce_plan(flags.plan);
  task.topology = predict::find_topology(flags.topology);
  task.devices = read_devices(flags, task.topology);
  if (flags.workload.empty()) {
    if (flags.from_trace.empty()) {
      task.net = read_net(flags, task.topology.device);
    } else {
      read_trace(flags, task);
    }
    if (flags.host_ms) {
      task.net->host_seconds = 1e-3 * require_positive("--host-ms", *flags.host_ms);
    }
    task.run.rows_per_epoch = kNetSamples;
    if (flags.rows) task.run.rows_per_epoch = require_positive("--rows", *flags.rows);
    task.run.dataset = count_text(task.run.rows_per_epoch, "sample");
    if (task.strategies.empty()) task.strategies.push_back(predict::Strategy::ddp);
    return task;
  }
  task.run = read_run_workload(flags.workload);
  if (!flags.precision.empty()) {
    predict::DeviceProfile& device = task.topology.device;
    require(!is_measured_on(task.run, device), ErrorCode::Usage, "--precision",
            "layers take as long as was measured on {}, in the precision that they had there",
            device.name);
    device.flops_per_second = peak_flops(device, read_precision(flags));
  }
  if (task.strategies.empty()) {
    const bool fits_a_host =
        *std::ranges::max_element(task.devices) <= task.topology.gpus_per_host();
    if (fits_a_host && task.accumulate == 1) {
      task.strategies.push_back(predict::Strategy::data_parallel);
    }
    task.strategies.push_back(predict::Strategy::ddp);
  }
  return task;
}

// Says where the times of kernels come from.
std::string source_of_compute(const PredictionTask& task) {
  const predict::DeviceProfile& device = task.topology.device;
  if (task.net && !task.net->source.empty()) return task.net->source;
  if (task.net && task.net->step_seconds) {
    return fmt::format("{} for a step on one GPU ({}), as given",
                       trace::format_seconds(*task.net->step_seconds),
                       count_text(task.net->batch_per_gpu, "sample"));
  }
  if (task.net) {
    return fmt::format(
        "a guess: {} for a step on one GPU ({}), {} times the {:.3g} GFLOP of a "
        "forward pass at {:.0f} % of {:.1f} TFLOP/s; it may be half or twice that, so measure it "
        "and give --step",
        trace::format_seconds(guessed_step_seconds(*task.net, device)),
        count_text(task.net->batch_per_gpu, "sample"),
        task.net->forward_passes > 3 ? "four" : "three", task.net->forward_flops / 1e9,
        100 * kGuessedEfficiency, peak_flops(device, task.net->precision) / 1e12);
  }
  if (is_measured_on(task.run, device)) {
    return fmt::format("as measured on {}, scaled with the rows", task.run.measured_on);
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
             wrap(fmt::format("predicted, not measured: {} on {} ({})",
                              task.net ? task.net->name : task.run.model, task.topology.name,
                              task.topology.device.name)));
  if (task.run.interrupted) {
    fmt::print(out, "{}\n", wrap(fmt::format("its run was {}", *task.run.interrupted)));
  }
  fmt::print(out, "{}\n\n", wrap("compute: " + source_of_compute(task)));
}

// Says why dp has no rows on several hosts; asking for it there is an error.
void print_left_out(const PredictFlags& flags, const PredictionTask& task, std::FILE* out) {
  if (!flags.strategies.empty() || task.strategies.size() > 1 || task.net) return;
  fmt::print(out, "{}\n\n",
             wrap(fmt::format("without dp: it is one process, and a host has {} devices",
                              task.topology.gpus_per_host())));
}

// The config of the run file: every flag, resolved.
nlohmann::ordered_json config_json(const PredictFlags& flags, const PredictionTask& task,
                                   const std::vector<WhatIf>& changes) {
  nlohmann::ordered_json json{{"topology", task.topology.name},
                              {"strategies", nlohmann::ordered_json::array()},
                              {"model", task.net ? task.net->name : task.run.model},
                              {"dataset", task.run.dataset},
                              {"devices", task.devices},
                              {"bucket_mib", task.bucket_mib},
                              {"first_bucket_mib", task.first_bucket_mib},
                              {"what_if", nlohmann::ordered_json::array()},
                              {"trace", nullptr}};
  if (task.net) {
    const Net& net = *task.net;
    json["params"] = net.parameters;
    json["batch_per_gpu"] = net.batch_per_gpu;
    json["is_guessed"] = !net.step_seconds;
    json["step"] = *with_step(net, task.topology.device).step_seconds;
  } else {
    json["batch"] = task.run.step.batch;
    if (task.run.shares_statistics) json["sync_batch_norm"] = true;
  }
  for (const predict::Strategy strategy : task.strategies) {
    json["strategies"].push_back(predict::to_string(strategy));
  }
  for (const WhatIf& change : changes) {
    if (!change.text.empty()) json["what_if"].push_back(change.text);
  }
  if (flags.overlap != "on") json["overlap"] = flags.overlap;
  if (flags.accumulate != 1) json["accumulate"] = flags.accumulate;
  if (flags.no_sync) json["no_sync"] = true;
  if (flags.host_ms) json["host_ms"] = *flags.host_ms;
  if (flags.pipeline_schedule != "gpipe") json["pipeline_schedule"] = flags.pipeline_schedule;
  if (flags.micro_batches) json["micro_batches"] = *flags.micro_batches;
  if (!flags.plan.empty()) json["plan"] = flags.plan;
  if (!flags.precision.empty()) json["precision"] = flags.precision;
  if (!flags.trace_path.empty()) json["trace"] = flags.trace_path;
  return json;
}

void print_group_head(const PredictionTask& task, const WhatIf& change, std::FILE* out) {
  if (!change.text.empty()) fmt::print(out, "what if {}\n", change.text);
  std::vector<std::size_t> idle = task.devices;
  std::erase_if(idle, [&](std::size_t devices) {
    return devices == 1 || devices * task.accumulate <= batch_of(task, change, devices);
  });
  if (idle.empty()) return;
  fmt::print(out, "{}\n",
             wrap(fmt::format("without {} devices: a step has {}", fmt::join(idle, ", "),
                              count_text(batch_of(task, change), "row"))));
}

// Prints what the rows come to, strategy by strategy: the epoch, the speed-up and what limits it,
// and what would be faster. rows: those without a change.
void print_sentences(const PredictFlags& flags, const PredictionTask& task,
                     const std::vector<PredictedRow>& rows, StepMemory& memory, std::FILE* out) {
  if (!flags.find.empty()) {
    fmt::print(out, "{}\n", wrap(find_sentence(task, parse_wish(flags.find), memory)));
  }
  for (const predict::Strategy strategy : task.strategies) {
    std::vector<PredictedRow> own;
    for (const PredictedRow& row : rows) {
      if (own.empty() || row.strategy == strategy) own.push_back(row);
    }
    const std::string name =
        task.strategies.size() > 1 ? fmt::format("{}: ", predict::to_string(strategy)) : "";
    if (flags.rows) fmt::print(out, "{}\n", wrap(name + epoch_sentence(task, own)));
    fmt::print(out, "{}\n", wrap(name + speedup_sentence(own)));
    if (!flags.rows) continue;
    for (const std::string& line : advice_lines(task, own.back(), memory)) {
      fmt::print(out, "{}\n", wrap("- " + line));
    }
  }
  fmt::print(out, "\n");
}

// Names what an answer about PyTorch's DataParallel depends on most; empty for other answers.
std::string host_note(const PredictionTask& task) {
  const bool has_dp =
      std::ranges::find(task.strategies, predict::Strategy::data_parallel) != task.strategies.end();
  if (!has_dp || !task.net) return "";
  const Net net = with_step(*task.net, task.topology.device);
  const std::string time = trace::format_seconds(python_host(net).forward_seconds);
  if (net.host_seconds) return fmt::format("dp: a forward pass takes {} to launch, as given", time);
  return fmt::format(
      "dp: a forward pass is guessed to take {} to launch, on which the answer depends most: "
      "measure it and give --host-ms (docs/prediction.md)",
      time);
}

std::string notes(const PredictionTask& task) {
  return fmt::format(
      "baseline: single, 1 predicted device; {}; band: nine of ten published rows like "
      "it lie inside{} (docs/prediction.md)",
      task.net ? "per s: samples of all GPUs"
               : fmt::format("epoch: {} rows, the data set's", task.run.rows_per_epoch),
      task.net && !task.net->step_seconds ? ", and half or twice the guessed step" : "");
}

// Prints what the rows hold in memory, and adds it to their JSON.
void print_memory(const PredictionTask& task, StepMemory& memory,
                  std::span<const PredictedRow> rows, nlohmann::ordered_json& json_rows,
                  std::FILE* out) {
  const std::vector<std::string> lines = memory_lines(task, memory, rows, json_rows);
  fmt::print(out, "\n");
  for (std::size_t i = 0; i < lines.size(); ++i) {
    fmt::print(out, "{}\n", i + 2 < lines.size() ? lines[i] : wrap(lines[i]));
  }
}

// The page that `lockstep report` would make of the run file.
void write_page(const std::string& path, const nlohmann::ordered_json& json) {
  page::PageRun run;
  run.name = "prediction";
  run.file = parse_run_file("prediction", json.dump(), "predict");
  write_file_atomically(path, page::make_page({run}));
}

void predict_steps(const PredictFlags& flags, const CommandLine& command) {
  const PredictionTask task = read_task(flags);
  std::vector<WhatIf> changes{WhatIf{}};
  for (const std::string& word : flags.what_if) {
    for (const WhatIf& change : parse_what_if(word)) changes.push_back(change);
  }
  require_possible(task, changes);
  std::FILE* const out = flags.json_path == "-" ? stderr : stdout;
  print_head(task, out);
  print_left_out(flags, task, out);
  std::vector<PredictedRow> rows = predict_rows(task, changes[0]);
  const std::size_t num_own_rows = rows.size();
  StepMemory memory(task, flags.optimizer == "sgd" ? predict::StateOptimizer::sgd
                                                   : predict::StateOptimizer::adam);
  print_sentences(flags, task, rows, memory, out);
  fmt::print(out, "{}\n", predicted_header(task));
  for (const WhatIf& change : changes) {
    print_group_head(task, change, out);
    std::vector<PredictedRow> group = change.text.empty() ? rows : predict_rows(task, change);
    for (PredictedRow& row : group) {
      fmt::print(out, "{}\n", predicted_line(row));
      if (!change.text.empty()) rows.push_back(std::move(row));
    }
  }
  fmt::print(out, "{}\n", wrap(notes(task)));
  for (const std::string& note : record_notes(rows)) fmt::print(out, "{}\n", wrap(note));
  if (const std::string note = host_note(task); !note.empty()) fmt::print(out, "{}\n", wrap(note));
  nlohmann::ordered_json json_rows = nlohmann::ordered_json::array();
  for (const PredictedRow& row : rows) json_rows.push_back(row_json(row, task.topology));
  print_memory(task, memory, {rows.data(), num_own_rows}, json_rows, out);
  if (!flags.trace_path.empty()) save_predicted_trace(flags.trace_path, rows.back());
  nlohmann::ordered_json json = file_head("lockstep.run/1", command);
  json["config"] = config_json(flags, task, changes);
  json["rows"] = std::move(json_rows);
  if (!task.net) json["workload"] = workload_json(task.run.step);
  if (!flags.json_path.empty()) write_json(flags.json_path, json);
  if (!flags.html_path.empty()) write_page(flags.html_path, json);
}

void predict_all_reduce(const PredictFlags& flags, const CommandLine& command) {
  const predict::Topology topology = predict::find_topology(flags.topology);
  const std::size_t bytes = parse_bytes("--all-reduce", flags.all_reduce);
  require(bytes >= 1, ErrorCode::Usage, "--all-reduce", "must be at least 1 byte");
  const nlohmann::ordered_json rows =
      predict_all_reduces(topology, bytes, read_devices(flags, topology));
  std::FILE* const out = flags.json_path == "-" ? stderr : stdout;
  fmt::print(out, "{}\n\n",
             wrap(fmt::format("predicted, not measured: an all-reduce of {} on {} ({})",
                              format_bytes(bytes), topology.name, topology.device.name)));
  fmt::print(out, "{}", all_reduce_table(rows));
  if (flags.json_path.empty()) return;
  nlohmann::ordered_json json = file_head("lockstep.predicted-all-reduce/1", command);
  json["topology"] = topology.name;
  json["rows"] = rows;
  write_json(flags.json_path, json);
}

void run_predict(const PredictFlags& flags, const CommandLine& command) {
  if (flags.how) {
    fmt::print("{}", how_to_measure());
    return;
  }
  require(flags.schedule.empty(), ErrorCode::Usage, "--schedule",
          "is the learning rate's; a pipeline's is --pipeline-schedule");
  require(flags.family.empty() || flags.model.empty(), ErrorCode::Usage, "--family",
          "is a net of its own; leave out --model");
  require(flags.from_trace.empty() ||
              (flags.model.empty() && flags.family.empty() && !flags.step && flags.flops.empty()),
          ErrorCode::Usage, "--from-trace",
          "has its own step; leave out --model, --family, --step and --flops");
  const bool has_net = !flags.params.empty() || !flags.model.empty() || !flags.family.empty() ||
                       !flags.from_trace.empty();
  const int subjects =
      (flags.workload.empty() ? 0 : 1) + (has_net ? 1 : 0) + (flags.all_reduce.empty() ? 0 : 1);
  require(subjects == 1, ErrorCode::Usage, "predict",
          "give one of --workload RUN.json, --params 25.6M (or --model NAME, --family NAME or "
          "--from-trace TRACE.json), --all-reduce BYTES");
  const bool has_net_flag =
      flags.step || flags.batch_per_gpu || !flags.flops.empty() || flags.host_ms;
  require(has_net || !flags.rows, ErrorCode::Usage, "--rows",
          "a run file knows its rows; leave it out");
  if (!flags.find.empty()) parse_wish(flags.find);
  require(
      flags.find.empty() || flags.rows || flags.find.find("epoch") == std::string::npos || !has_net,
      ErrorCode::Usage, "--find", "an epoch needs its number of samples: add --rows");
  require(has_net || !has_net_flag, ErrorCode::Usage, "predict",
          "--step, --batch-per-gpu, --flops and --host-ms need --params, --model or --family");
  require(!flags.topology.empty(), ErrorCode::Usage, "--topology",
          "name a topology such as {}, or a file", predict::preset_names().front());
  require_writable(
      {{"--json", flags.json_path}, {"--trace", flags.trace_path}, {"--html", flags.html_path}});
  flags.all_reduce.empty() ? predict_steps(flags, command) : predict_all_reduce(flags, command);
}

// A flag whose value goes into `value`, which must live as long as predict. type: the value's name
// in --help, if it isn't the usual one.
template <typename Value>
CLI::Option* add(CLI::App& predict, const char* name, Value& value, const std::string& help,
                 const char* type = "") {
  CLI::Option* const option = predict.add_option(name, value, help);
  return *type == '\0' ? option : option->type_name(type);
}

void add_subject_flags(CLI::App& predict, PredictFlags& flags) {
  add(predict, "--workload", flags.workload,
      "predict what this run trained: a run file of train or compare", "RUN.json");
  add(predict, "--model", flags.model,
      fmt::format("instead of --workload: a known net, one of {}, or as in mlp:784-1024-10",
                  known_net_names()),
      "NET");
  add(predict, "--params", flags.params,
      "instead of --workload: a net of so many parameters, as in 25.6M; with --family: if they "
      "aren't the family's",
      "COUNT");
  add(predict, "--family", flags.family,
      fmt::format("instead of --workload: a net by its sizes, for its memory too: {}",
                  known_family_names()),
      "FAMILY");
  add(predict, "--recompute", flags.recompute,
      "with --family: which activations are computed again; attention: its scores, as a fused "
      "attention does")
      ->check(one_of({"none", "attention", "full"}));
  add(predict, "--optimizer", flags.optimizer, "whose state is in memory: sgd has momentum")
      ->check(one_of({"adam", "sgd"}));
  add(predict, "--from-trace", flags.from_trace,
      "instead of --workload: a rank's trace of torch.profiler; its step and buckets on another "
      "machine",
      "TRACE.json");
  add(predict, "--batch-per-gpu", flags.batch_per_gpu,
      "with --model or --params: samples of a step on each GPU");
  add(predict, "--step", flags.step,
      "with --model or --params: seconds that a step takes on one GPU (default: a guess)",
      "SECONDS");
  predict.add_flag("--how", flags.how, "print a PyTorch program that measures --step");
  add(predict, "--rows", flags.rows,
      "samples of an epoch: say how long it takes, and what would be faster");
  add(predict, "--find", flags.find,
      "the smallest number of devices and the mode for 'epoch < 1h' or 'step < 200ms'", "WISH");
  add(predict, "--flops", flags.flops,
      "with --params: operations of a sample's forward pass, as in 8.2G; the step is guessed from "
      "them",
      "COUNT");
  add(predict, "--all-reduce", flags.all_reduce,
      "instead of a step: an all-reduce of so many bytes, as in 100M; it takes only --topology, "
      "--devices and --json",
      "BYTES");
}

void add_machine_flags(CLI::App& predict, PredictFlags& flags) {
  add(predict, "--precision", flags.precision,
      "precision of products whose times are guessed, and of what is in memory (default: fp32)")
      ->check(one_of({"fp32", "tf32", "bf16"}));
  add(predict, "--topology", flags.topology,
      "the machine: one of those below, a JSON file, or several of it, as in dgx-a100*4@100gbe",
      "TOPOLOGY");
  add(predict, "--devices", flags.devices, "numbers of devices, a row for each", "COUNTS");
  add(predict, "--strategy,--modes", flags.strategies,
      "one or several of dp, ddp, hierarchical, zero1, zero2, zero3, pipeline, device_allreduce, "
      "device_parameter_server, nccl_replicated, cpu_reduce, cpu_parameter_server (default: ddp; "
      "for a run on one host also "
      "dp)",
      "STRATEGIES")
      ->delimiter(',')
      ->default_str("");
  add(predict, "--overlap", flags.overlap,
      "off: gradients leave behind the whole backward pass, as some programs do it")
      ->check(one_of({"on", "off"}));
  add(predict, "--accumulate", flags.accumulate,
      "micro-batches of each device's rows; gradients travel with the last, for zero2 and zero3 "
      "with each");
  predict.add_flag("--no-sync", flags.no_sync,
                   "zero2 and zero3 reduce gradients with the last micro-batch only, as FSDP does "
                   "under no_sync()");
  add(predict, "--host-ms", flags.host_ms,
      "for dp: milliseconds until model(x) returns on one GPU, which is still computing (default: "
      "a "
      "guess of 0.083 for each tensor of parameters)",
      "MS");
  add(predict, "--pipeline-schedule", flags.pipeline_schedule,
      "the order of a pipeline's passes; interleaved has two chunks on each stage")
      ->check(one_of({"gpipe", "1f1b", "interleaved"}));
  add(predict, "--micro-batches", flags.micro_batches,
      "that a pipeline's batch is cut into (default: four for each device)");
  add(predict, "--schedule", flags.schedule, "")->group("");
  add(predict, "--plan", flags.plan,
      "how ddp's all-reduces send: the name of a plan of train --plan (default: as NCCL does)",
      "PLAN");
  add(predict, "--bucket-mib", flags.bucket_mib, "size of ddp's gradient buckets in MiB");
  add(predict, "--first-bucket-mib", flags.first_bucket_mib, "size of the first bucket in MiB");
  add(predict, "--what-if", flags.what_if,
      "predict a change too: bucket_mib=1,25,100, bandwidth=2x, batch=64,256, peer_access=on, "
      "gradients=bf16, or parameters=bf16 for those that ZeRO gathers",
      "CHANGE")
      ->default_str("");
}

void add_predict_flags(CLI::App& predict, PredictFlags& flags) {
  add_subject_flags(predict, flags);
  add_machine_flags(predict, flags);
  add(predict, "--trace", flags.trace_path,
      "write a step of the last row here, for ui.perfetto.dev", "FILE");
  add(predict, "--html", flags.html_path,
      "write a page here: speed-up with its band, and memory as stacked bars", "FILE");
  add(predict, "--json", flags.json_path, "write the rows here (-: standard output)", "FILE");
  for (const char* const name :
       {"--precision", "--strategy", "--overlap", "--accumulate", "--no-sync", "--host-ms",
        "--pipeline-schedule", "--micro-batches", "--plan", "--bucket-mib", "--first-bucket-mib",
        "--what-if", "--trace", "--html"}) {
    predict.get_option(name)->excludes(predict.get_option("--all-reduce"));
  }
  group_flags(predict, {{"Most used",
                         {"--workload", "--model", "--params", "--batch-per-gpu", "--step",
                          "--topology", "--devices", "--strategy", "--what-if", "--json"}},
                        {"What to predict",
                         {"--rows", "--find", "--how", "--from-trace", "--family", "--all-reduce",
                          "--flops", "--precision", "--recompute", "--optimizer"}},
                        {"How the devices share the work",
                         {"--accumulate", "--no-sync", "--overlap", "--host-ms",
                          "--pipeline-schedule", "--micro-batches"}},
                        {"How fast", {"--plan", "--bucket-mib", "--first-bucket-mib"}},
                        {"What to write", {"--trace", "--html"}}});
}

}  // namespace

void add_predict_command(CLI::App& program, const CommandLine& command) {
  auto flags = std::make_shared<PredictFlags>();
  CLI::App& predict =
      *program.add_subcommand("predict", "Predict epoch times on machines that you do not have");
  add_predict_flags(predict, *flags);
  predict.footer(fmt::format("Topologies: {}", fmt::join(predict::preset_names(), ", ")));
  predict.callback([flags, command] { run_predict(*flags, command); });
}

}  // namespace lockstep::tools
