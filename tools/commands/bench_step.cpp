// lockstep bench step: the time of one training step (forward, cross-entropy, backward, SGD with
// momentum) on one device, without data loading. Or, without running it, what it computes and
// moves.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "datasets/dataset.h"
#include "engine/autograd/ops/ops.h"
#include "engine/core/error.h"
#include "engine/core/text.h"
#include "engine/nn/models.h"
#include "engine/runtime/logical_device.h"
#include "engine/runtime/physical_gpus.h"
#include "engine/runtime/step_graph.h"
#include "engine/trace/breakdown.h"
#include "kernels/matmul_precision.h"
#include "tools/commands/commands.h"
#include "tools/flags/command_line.h"
#include "tools/flags/help.h"
#include "tools/flags/numbers.h"
#include "tools/flags/output_path.h"
#include "tools/record/host_info.h"
#include "tools/record/run_file.h"
#include "tools/run/data_sheet.h"
#include "tools/run/interruption.h"
#include "tools/run/kernel_work.h"
#include "tools/run/layer_recorder.h"
#include "tools/run/placement.h"
#include "tools/run/sample_step.h"
#include "tools/run/step_statistics.h"
#include "tools/run/task.h"
#include "tools/text/status_line.h"

namespace lockstep::tools {

namespace {

struct BenchStepFlags {
  TrainingFlags training;  // --device and --precision
  std::vector<std::string> models = {"mlp:784-256-128-10"};
  std::string dataset;  // whose rows' sizes; see rows_for()
  std::string batches;  // empty: kRowBatches, kImageBatches or kTextBatches
  std::string threads;  // empty: all cores
  double seconds = 0.8;
  bool graph = false;
  bool memory = false;
  bool work = false;
  std::string card;
  std::string json_path;
};

constexpr const char* kRowBatches = "64,256,1024,8192";
constexpr const char* kImageBatches = "16,64";
constexpr const char* kTextBatches = "8";
constexpr std::size_t kWarmUpSteps = 5;
constexpr std::size_t kFewestTimes = 11;
constexpr double kMostStepsAtATime = 10;

struct MeasuredStep {
  double median_seconds = 0;
  KernelWork work = {};             // of a step
  std::size_t num_steps = 0;        // timed steps
  std::size_t num_graph_nodes = 0;  // kernels, copies and fills; 0 without a graph
  // --memory
  std::vector<LayerMemory> memory = {};
  std::size_t input_bytes = 0;
  std::size_t peak_bytes = 0;
};

// A model, the rows that it takes, and its layers' sizes.
struct BenchModel {
  std::string name;
  nn::ModelData data;
  std::vector<FileLayer> layers = {};
  double kept_bytes = 0;  // per row, for the backward pass
};

bool is_text(const nn::ModelData& data) {
  return data.values == nn::ModelData::Values::tokens;
}

// The rows of a model. A GPT's are tokens of the text --dataset, or of GPT-2's vocabulary.
nn::ModelData rows_of(const std::string& name, const std::string& dataset) {
  const nn::ModelSpec spec = nn::parse_model(name);
  if (!spec.takes_text()) return rows_for(name, dataset);
  std::size_t vocabulary = spec.gpt.vocabulary;
  if (!dataset.empty()) {
    const datasets::DatasetSpec text = datasets::parse_dataset(dataset);
    require(text.is_text(), ErrorCode::Usage, "--dataset",
            "'{}' takes a text, found '{}'; use embedded-text or text:FILE", name, dataset);
    vocabulary = datasets::load_dataset(text, "data", 0, {spec.gpt.context}).train.num_classes;
  }
  nn::ModelData data{Shape{spec.gpt.context}, vocabulary, nn::ModelData::Values::tokens};
  // Weights, gradients, momentum, and the weights of the trial.
  require_memory("--model", 4 * sizeof(float) * nn::count_parameters(spec, data));
  return data;
}

// Tries a step: of two rows, because batch norm has no statistics over one, or of one text.
BenchModel try_model(const std::string& name, const nn::ModelData& data, Device device) {
  const std::size_t num_rows = is_text(data) ? 1 : 2;
  const std::shared_ptr<nn::Module> model = nn::make_model(name, data, 0, DType::float32, device);
  const DType dtype = is_text(data) ? DType::int64 : DType::float32;
  const Variable x(Tensor::zeros(batch_shape(data, num_rows), dtype, device));
  const auto forward = [&] { return (*model)(x); };
  LayerRecorder recorder(*model);
  recorder.record(num_rows, forward);
  BenchModel tried{name, data, recorder.layers()};
  for (const LayerMemory& layer : recorder.memory(forward)) {
    tried.kept_bytes += static_cast<double>(layer.kept_bytes) / static_cast<double>(num_rows);
  }
  return tried;
}

// A GPU gets several steps at a time, as in a training loop, which does not wait for each; as many
// as take a tenth of a second, so that slow steps do not take minutes.
std::size_t steps_at_a_time(Device device, const std::function<void()>& step, SampleStep& sample) {
  if (device.type != DeviceType::cuda) return 1;
  const auto start = std::chrono::steady_clock::now();
  step();
  sample.synchronize();
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  return static_cast<std::size_t>(std::clamp(0.1 / taken.count(), 1.0, kMostStepsAtATime));
}

const runtime::PhysicalGpu& gpu_of(Device device) {
  return runtime::physical_gpus()[static_cast<std::size_t>(runtime::gpu_behind(device))];
}

// The card of --card, or of the device; absent if no data sheet of the device is known.
std::optional<CardSpeed> card_of(const BenchStepFlags& flags, Device device) {
  const bool is_named = !flags.card.empty();
  if (!is_named && device.type == DeviceType::cpu) return std::nullopt;
  const std::string& card = is_named ? flags.card : gpu_of(device).name;
  const std::optional<CardSpeed> speed = card_speed(card, kernels::matmul_precision());
  require(speed || !is_named, ErrorCode::Usage, "--card",
          "no data sheet is known of '{}' in this --precision; known are {}", shown(card),
          known_cards());
  return speed;
}

MeasuredStep measure_step(const BenchModel& subject, std::size_t batch, Device device,
                          const BenchStepFlags& flags) {
  using Clock = std::chrono::steady_clock;
  SampleStep sample(subject.name, subject.data, batch, device);
  const auto issue = [&] { sample.run(); };
  std::optional<runtime::StepGraph> graph;
  if (flags.graph) graph.emplace(std::vector<Device>{device});
  const auto step = [&] { graph ? graph->run(issue) : issue(); };
  for (std::size_t i = 0; i < kWarmUpSteps; ++i) step();
  sample.synchronize();
  const std::size_t num_steps = steps_at_a_time(device, step, sample);
  std::vector<double> times;
  const Clock::time_point begin = Clock::now();
  while (times.size() < kFewestTimes ||
         std::chrono::duration<double>(Clock::now() - begin).count() < flags.seconds) {
    const Clock::time_point start = Clock::now();
    for (std::size_t i = 0; i < num_steps; ++i) step();
    sample.synchronize();
    throw_if_interrupted();
    times.push_back(std::chrono::duration<double>(Clock::now() - start).count() /
                    static_cast<double>(num_steps));
  }
  MeasuredStep measured{median(times), total(count_work(sample, device, card_of(flags, device))),
                        times.size() * num_steps, graph ? graph->num_nodes() : 0};
  if (!flags.memory) return measured;
  measured.peak_bytes = sample.measure_peak_bytes();
  measured.memory = LayerRecorder(sample.model()).memory([&] { return sample.forward(); });
  measured.input_bytes = sample.input_bytes();
  return measured;
}

// A row of the table.
struct BenchRow {
  std::shared_ptr<const BenchModel> model;
  std::size_t batch = 0;
  std::size_t threads = 0;
};

double memory_bytes_of(Device device) {
  if (device.type == DeviceType::cpu) return static_cast<double>(machine_memory_bytes());
  return static_cast<double>(gpu_of(device).memory_bytes);
}

// Throws Error{Usage} that says which batch would fit, unless a step of this one fits into the
// device's memory: weights, gradients and momentum, the batch, and what its rows keep.
void require_step_fits(const BenchModel& model, std::size_t batch, Device device) {
  constexpr double kGib = std::size_t{1} << 30;
  double fixed_bytes = 0;
  for (const FileLayer& layer : model.layers) {
    fixed_bytes += 3 * static_cast<double>(layer.parameter_bytes);
  }
  const double row_bytes =
      sizeof(float) * static_cast<double>(model.data.row.num_elements()) + 2 * model.kept_bytes;
  const double available = memory_bytes_of(device);
  const double needed = fixed_bytes + row_bytes * static_cast<double>(batch);
  require(
      needed <= available, ErrorCode::Usage, "--batch",
      "a step of {} on {} rows needs about {:.1f} GiB of memory, and {} has {:.1f}; {}", model.name,
      batch, needed / kGib, lockstep::to_string(device), available / kGib,
      fixed_bytes + row_bytes > available
          ? "use a smaller --model"
          : fmt::format("{} rows would fit", std::floor((available - fixed_bytes) / row_bytes)));
}

// All rows, checked before the first is measured.
std::vector<BenchRow> list_rows(const BenchStepFlags& flags, Device device) {
  const auto any_model = [&](bool (nn::ModelSpec::*takes)() const) {
    return std::ranges::any_of(
        flags.models, [&](const std::string& model) { return (nn::parse_model(model).*takes)(); });
  };
  const char* const usual = any_model(&nn::ModelSpec::takes_text)     ? kTextBatches
                            : any_model(&nn::ModelSpec::takes_images) ? kImageBatches
                                                                      : kRowBatches;
  const auto batches = parse_list("--batch", flags.batches.empty() ? usual : flags.batches);
  std::vector<std::size_t> threads{runtime::num_cores()};
  if (!flags.threads.empty()) threads = parse_list("--threads-per-device", flags.threads);
  for (const std::size_t count : threads) {
    require(count >= 1 && count <= 1024, ErrorCode::Usage, "--threads-per-device",
            "must be from 1 to 1024, found {}", count);
    note_missing_cores(count);
  }
  require_positive("--seconds", flags.seconds);
  require_writable({{"--json", flags.json_path}});
  std::vector<BenchRow> rows;
  for (const std::string& name : flags.models) {
    const nn::ModelData data = rows_of(name, flags.dataset);
    const auto model = std::make_shared<const BenchModel>(
        flags.work ? BenchModel{name, data} : try_model(name, data, device));
    for (const std::size_t batch : batches) {
      require(batch >= 1, ErrorCode::Usage, "--batch", "must be at least 1, found 0");
      if (!flags.work) require_step_fits(*model, batch, device);
      for (const std::size_t count : threads) rows.push_back({model, batch, count});
    }
  }
  return rows;
}

nlohmann::ordered_json row_json(const BenchStepFlags& flags, const BenchRow& row, Device device,
                                const MeasuredStep& step) {
  const std::vector<FileLayer>& layers = row.model->layers;
  nlohmann::json row_shape = nlohmann::json::array();
  for (std::size_t dim = 0; dim < row.model->data.row.num_dims(); ++dim) {
    row_shape.push_back(row.model->data.row[dim]);
  }
  nlohmann::ordered_json json{
      {"model", row.model->name},
      {"batch", row.batch},
      {"device", lockstep::to_string(device)},
      {"threads", row.threads},
      {"graph", flags.graph},
      {"graph_nodes", step.num_graph_nodes},
      {"precision", flags.training.precision},
      {"iterations", step.num_steps},
      {"warmup_iterations", kWarmUpSteps},
      {"median_step_seconds", step.median_seconds},
      {"samples_per_second", static_cast<double>(row.batch) / step.median_seconds},
      {"gflops", step.work.flops / step.median_seconds * 1e-9},
      {"row_shape", row_shape},
      {"num_classes", row.model->data.num_classes}};
  if (step.work.least_seconds > 0) json["least_seconds"] = step.work.least_seconds;
  if (!flags.memory) return json;
  json["peak_bytes"] = step.peak_bytes;
  json["memory"] = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < layers.size(); ++i) {
    json["memory"].push_back({{"layer", layers[i].name},
                              {"parameter_bytes", layers[i].parameter_bytes},
                              {"activation_bytes", step.memory[i].kept_bytes},
                              {"patch_bytes", step.memory[i].scratch_bytes}});
  }
  return json;
}

nlohmann::ordered_json work_json(const KernelWork& work, bool has_card) {
  nlohmann::ordered_json json{
      {"calls", work.num_calls}, {"flop", work.flops}, {"bytes", work.bytes}};
  if (has_card) json["least_seconds"] = work.least_seconds;
  return json;
}

// --work. Returns the exit code.
int count_steps(const BenchStepFlags& flags, const CommandLine& command,
                const std::vector<BenchRow>& rows, Device device) {
  std::FILE* const out = flags.json_path == "-" ? stderr : stdout;
  const std::optional<CardSpeed> card = card_of(flags, device);
  nlohmann::ordered_json json = file_head("lockstep.step-work/1", command);
  json["rows"] = nlohmann::ordered_json::array();
  for (const BenchRow& row : rows) {
    SampleStep sample(row.model->name, row.model->data, row.batch, device);
    const std::map<std::string, KernelWork> work = count_work(sample, device, card);
    fmt::print(out, "{}{}, batch {}, {}:\n{}", json["rows"].empty() ? "" : "\n", row.model->name,
               row.batch, flags.training.precision, work_table(work, card));
    nlohmann::ordered_json& told = json["rows"].emplace_back(nlohmann::ordered_json{
        {"model", row.model->name}, {"batch", row.batch}, {"precision", flags.training.precision}});
    if (card) told["card"] = card->name;
    told.update(work_json(total(work), card.has_value()));
    for (const auto& [name, kernel] : work) {
      told["kernels"].push_back({{"name", name}});
      told["kernels"].back().update(work_json(kernel, card.has_value()));
    }
  }
  return end_bench(flags.json_path, json, 0, rows.size());
}

// Returns the exit code.
int run_bench_step(const BenchStepFlags& flags, const CommandLine& command) {
  std::FILE* const out = flags.json_path == "-" ? stderr : stdout;
  const Device device{resolve_device_type(flags.training), 0};
  require(!flags.graph || device.type == DeviceType::cuda, ErrorCode::Usage, "--graph",
          "captures a step on a CUDA device; leave it out on the CPU");
  require(!flags.graph || !flags.memory, ErrorCode::Usage, "--memory",
          "looks into a step that is not a graph; leave out --graph");
  require(flags.card.empty() || flags.work, ErrorCode::Usage, "--card",
          "says how fast --work could be on a card; add --work");
  require(!flags.work || (!flags.graph && !flags.memory), ErrorCode::Usage, "--work",
          "counts a step without running it; leave out {}", flags.graph ? "--graph" : "--memory");
  const std::vector<BenchRow> rows = list_rows(flags, device);
  if (flags.work) return count_steps(flags, command, rows, device);
  nlohmann::ordered_json json = file_head("lockstep.bench-step/1", command);
  json["rows"] = nlohmann::ordered_json::array();
  fmt::print(out, "{:<24}{:>7}{:>8}{:>8}{:>12}{:>11}{:>9}\n", "model", "batch", "device", "threads",
             "median step", "samples/s", "GFLOP/s");
  std::vector<Progress::Row> names;
  for (const BenchRow& row : rows) {
    names.push_back({fmt::format("{}, batch {}", row.model->name, row.batch)});
  }
  Progress progress(names);
  const Interruption interruption("this step");
  for (const BenchRow& row : rows) {
    runtime::set_threads_per_device(row.threads);
    progress.begin_row();
    const std::optional<MeasuredStep> measured =
        unless_interrupted([&] { return measure_step(*row.model, row.batch, device, flags); });
    progress.end_row();
    if (!measured) break;
    const MeasuredStep& step = *measured;
    const nlohmann::ordered_json& told =
        json["rows"].emplace_back(row_json(flags, row, device, step));
    fmt::print(out, "{:<24}{:>7}{:>8}{:>8}{:>12}{:>11.0f}{:>9.1f}\n", row.model->name, row.batch,
               lockstep::to_string(device), row.threads, trace::format_seconds(step.median_seconds),
               told["samples_per_second"].get<double>(), told["gflops"].get<double>());
    if (flags.memory) {
      fmt::print(out, "\n{}\n",
                 memory_table(row.model->layers, step.memory, step.input_bytes, step.peak_bytes));
    }
    std::fflush(out);
  }
  return end_bench(flags.json_path, json, Interruption::signal(), rows.size());
}

}  // namespace

void add_bench_step_command(CLI::App& bench, const CommandLine& command, int& exit_code) {
  auto flags = std::make_shared<BenchStepFlags>();
  CLI::App& step = *bench.add_subcommand("step", "Time a training step on one device");
  add_training_flag(step, flags->training, "--device");
  add_option(step, "--model", flags->models, "MODELS", "one or several, separated by commas")
      ->delimiter(',');
  add_option(step, "--dataset", flags->dataset, "DATA",
             "the rows that it takes: digits, synthetic:8x28x28x1x10, embedded-text (default: as "
             "wide as an mlp is; for a GPT GPT-2's 50,257 tokens; else digits)");
  add_option(step, "--batch", flags->batches, "COUNTS",
             fmt::format("rows of a step, one number or several (default: {}; for images {}; "
                         "for texts {})",
                         kRowBatches, kImageBatches, kTextBatches));
  add_option(step, "--threads-per-device", flags->threads, "COUNTS",
             "CPU threads, one number or several, as in 1,2 (default: all cores)");
  step.add_option("--seconds", flags->seconds, "how long to measure each row");
  step.add_flag("--graph", flags->graph, "launch the step as one CUDA graph");
  step.add_flag("--memory", flags->memory, "print also what each layer keeps in memory");
  step.add_flag(
      "--work", flags->work,
      "instead of measuring, count what the step's kernels compute and move; needs no GPU");
  add_option(step, "--card", flags->card, "NAME",
             "with --work: the least time on this card, by its data sheet; H200, A10, \"RTX 4090\" "
             "... (default: the GPU's own)");
  add_training_flag(step, flags->training, "--precision");
  add_option(step, "--json", flags->json_path, "FILE", "write the rows here (-: standard output)");
  // Twelve flags in all, so none of them is rare.
  group_flags(step, {{"What to train", {"--model", "--dataset", "--batch"}},
                     {"On what", {"--device", "--threads-per-device"}},
                     {"How fast", {"--precision", "--graph", "--seconds"}},
                     {"What to count", {"--work", "--card"}},
                     {"What to write", {"--memory", "--json"}}});
  step.callback([flags, command, &exit_code] { exit_code = run_bench_step(*flags, command); });
}

void add_bench_command(CLI::App& program, const CommandLine& command, int& exit_code) {
  CLI::App& bench = *program.add_subcommand("bench", "Measure a training step or a collective");
  bench.require_subcommand(1);
  add_bench_step_command(bench, command, exit_code);
  add_bench_all_reduce_command(bench, command, exit_code);
}

}  // namespace lockstep::tools
