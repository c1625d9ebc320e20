// lockstep bench step: the time of one training step (forward, cross-entropy, backward, SGD with
// momentum) on one device, without data loading.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "engine/autograd/ops/ops.h"
#include "engine/core/error.h"
#include "engine/nn/models.h"
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
#include "tools/run/interruption.h"
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
  std::string batches;  // empty: kRowBatches, or kImageBatches for a model of images
  std::string threads;  // empty: all cores
  double seconds = 0.8;
  bool graph = false;
  bool memory = false;
  std::string json_path;
};

constexpr const char* kRowBatches = "64,256,1024,8192";
constexpr const char* kImageBatches = "16,64";
constexpr std::size_t kWarmUpSteps = 5;
constexpr std::size_t kFewestTimes = 11;
// A GPU gets this many steps at a time, as in a training loop, which does not wait for each step.
constexpr std::size_t kStepsAtATime = 10;

// Multiplications and additions of a step's matrix products: 2 per weight and row (or output pixel)
// forward, 2 for the weight's gradient, and 2 for the input's, which the first layer does not need.
double floating_point_operations(std::span<const FileLayer> layers, std::size_t batch) {
  double total = 0;
  for (const FileLayer& layer : layers) {
    if (!layer.product) continue;
    const predict::LayerShape& product = *layer.product;
    total += (total == 0 ? 4.0 : 6.0) * static_cast<double>(batch) * product.rows * product.inputs *
             product.outputs;
  }
  return total;
}

struct MeasuredStep {
  double median_seconds = 0;
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

// Tries a step of two rows, because batch norm has no statistics over one.
BenchModel try_model(const std::string& name, const nn::ModelData& data) {
  constexpr std::size_t kRows = 2;
  const std::shared_ptr<nn::Module> model = nn::make_model(name, data, 0);
  const Variable x(Tensor::zeros(batch_shape(data, kRows)));
  const auto forward = [&] { return (*model)(x); };
  LayerRecorder recorder(*model);
  recorder.record(kRows, forward);
  BenchModel tried{name, data, recorder.layers()};
  for (const LayerMemory& layer : recorder.memory(forward)) {
    tried.kept_bytes += static_cast<double>(layer.kept_bytes) / kRows;
  }
  return tried;
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
  const std::size_t num_steps = device.type == DeviceType::cuda ? kStepsAtATime : 1;
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
  MeasuredStep measured{median(times), times.size() * num_steps, graph ? graph->num_nodes() : 0};
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

// All rows, checked before the first is measured.
std::vector<BenchRow> list_rows(const BenchStepFlags& flags) {
  const bool has_images = std::ranges::any_of(
      flags.models, [](const std::string& model) { return nn::parse_model(model).takes_images(); });
  const char* const usual = has_images ? kImageBatches : kRowBatches;
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
    const nn::ModelData data = rows_for(name, flags.dataset);
    const auto model = std::make_shared<const BenchModel>(try_model(name, data));
    const double bytes =
        sizeof(float) * static_cast<double>(data.row.num_elements()) + 2 * model->kept_bytes;
    for (const std::size_t batch : batches) {
      require(batch >= 1, ErrorCode::Usage, "--batch", "must be at least 1, found 0");
      require_memory("--batch", bytes * static_cast<double>(batch));
      for (const std::size_t count : threads) rows.push_back({model, batch, count});
    }
  }
  return rows;
}

nlohmann::ordered_json row_json(const BenchStepFlags& flags, const BenchRow& row, Device device,
                                const MeasuredStep& step) {
  const std::vector<FileLayer>& layers = row.model->layers;
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
      {"gflops", floating_point_operations(layers, row.batch) / step.median_seconds * 1e-9}};
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

// Returns the exit code.
int run_bench_step(const BenchStepFlags& flags, const CommandLine& command) {
  std::FILE* const out = flags.json_path == "-" ? stderr : stdout;
  const Device device{resolve_device_type(flags.training), 0};
  require(!flags.graph || device.type == DeviceType::cuda, ErrorCode::Usage, "--graph",
          "captures a step on a CUDA device; leave it out on the CPU");
  require(!flags.graph || !flags.memory, ErrorCode::Usage, "--memory",
          "looks into a step that is not a graph; leave out --graph");
  const std::vector<BenchRow> rows = list_rows(flags);
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
  step.add_option("--model", flags->models, "one or several, separated by commas")
      ->type_name("MODELS")
      ->delimiter(',');
  step.add_option("--dataset", flags->dataset,
                  "the rows that it takes: digits, synthetic:8x28x28x1x10 (default: as wide as an "
                  "mlp is; digits for other models)")
      ->type_name("DATA");
  step.add_option("--batch", flags->batches,
                  fmt::format("rows of a step, one number or several (default: {}; for images {})",
                              kRowBatches, kImageBatches))
      ->type_name("COUNTS");
  step.add_option("--threads-per-device", flags->threads,
                  "CPU threads, one number or several, as in 1,2 (default: all cores)")
      ->type_name("COUNTS");
  step.add_option("--seconds", flags->seconds, "how long to measure each row");
  step.add_flag("--graph", flags->graph, "launch the step as one CUDA graph");
  step.add_flag("--memory", flags->memory, "print also what each layer keeps in memory");
  add_training_flag(step, flags->training, "--precision");
  step.add_option("--json", flags->json_path, "write the rows here (-: standard output)")
      ->type_name("FILE");
  // Ten flags in all, so none of them is rare.
  group_flags(step, {{"What to train", {"--model", "--dataset", "--batch"}},
                     {"On what", {"--device", "--threads-per-device"}},
                     {"How fast", {"--precision", "--graph", "--seconds"}},
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
