// lockstep bench step: the time of one training step (forward, cross-entropy, backward, SGD with
// momentum) on one device, without data loading.
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "engine/autograd/ops/ops.h"
#include "engine/core/error.h"
#include "engine/nn/mlp.h"
#include "engine/optim/optimizer.h"
#include "engine/runtime/logical_device.h"
#include "engine/runtime/step_graph.h"
#include "engine/trace/breakdown.h"
#include "tools/cli/numbers.h"
#include "tools/cli/output_path.h"
#include "tools/commands.h"
#include "tools/report/host_info.h"
#include "tools/report/run_file.h"
#include "tools/report/status_line.h"
#include "tools/report/step_statistics.h"
#include "tools/training/placement.h"

namespace lockstep::tools {

namespace {

struct BenchStepFlags {
  TrainingFlags training;  // --device and --matmul-precision
  std::vector<std::string> models = {"mlp:784-256-128-10"};
  std::string batches = "64,256,1024,8192";
  std::string threads;  // empty: all cores
  double seconds = 0.8;
  bool graph = false;
  std::string json_path;
};

constexpr std::size_t kWarmUpSteps = 5;
constexpr std::size_t kFewestTimes = 11;
// A GPU is given this many steps at a time, as in a training loop, where nobody waits for each one.
constexpr std::size_t kStepsAtATime = 10;

// Multiplications and additions of a step's matrix products: 2 per weight and row forward, 2 for
// the weight's gradient, and 2 for the input's, which the first layer does not need.
double floating_point_operations(const nn::MlpSpec& spec, std::size_t batch) {
  double total = 0;
  for (std::size_t i = 0; i + 1 < spec.sizes.size(); ++i) {
    total += (i == 0 ? 4.0 : 6.0) * static_cast<double>(batch * spec.sizes[i] * spec.sizes[i + 1]);
  }
  return total;
}

struct StepTime {
  double median_seconds = 0;
  std::size_t num_steps = 0;        // that were timed
  std::size_t num_graph_nodes = 0;  // kernels, copies and fills; 0 without a graph
};

StepTime measure_step(const nn::MlpSpec& spec, std::size_t batch, Device device,
                      const BenchStepFlags& flags) {
  using Clock = std::chrono::steady_clock;
  const std::shared_ptr<nn::Sequential> model = nn::make_mlp(spec, 0, DType::float32, device);
  optim::SgdOptions options;
  options.learning_rate = 0.01;
  options.momentum = 0.9;
  optim::Sgd optimizer(model->parameters(), options);
  Rng rng(1);
  const Variable x(
      Tensor::uniform({batch, spec.sizes.front()}, -1, 1, rng, DType::float32, device));
  std::vector<std::int64_t> labels(batch);
  for (std::size_t row = 0; row < batch; ++row) {
    labels[row] = static_cast<std::int64_t>(row % spec.sizes.back());
  }
  const Tensor targets = Tensor::from(labels, {batch}, device);
  const auto issue = [&] {
    optimizer.zero_grad();
    cross_entropy((*model)(x), targets).backward();
    optimizer.step();
  };
  std::optional<runtime::StepGraph> graph;
  if (flags.graph) graph.emplace(std::vector<Device>{device});
  const auto step = [&] { graph ? graph->run(issue) : issue(); };
  for (std::size_t i = 0; i < kWarmUpSteps; ++i) step();
  targets.stream().synchronize();
  const std::size_t num_steps = device.type == DeviceType::cuda ? kStepsAtATime : 1;
  std::vector<double> times;
  const Clock::time_point begin = Clock::now();
  while (times.size() < kFewestTimes ||
         std::chrono::duration<double>(Clock::now() - begin).count() < flags.seconds) {
    const Clock::time_point start = Clock::now();
    for (std::size_t i = 0; i < num_steps; ++i) step();
    targets.stream().synchronize();
    times.push_back(std::chrono::duration<double>(Clock::now() - start).count() /
                    static_cast<double>(num_steps));
  }
  return {median(times), times.size() * num_steps, graph ? graph->num_nodes() : 0};
}

// All rows of the table, checked before the first is measured.
struct BenchStepRows {
  std::vector<nn::MlpSpec> specs;
  std::vector<std::size_t> batches;
  std::vector<std::size_t> threads;
};

BenchStepRows list_rows(const BenchStepFlags& flags) {
  BenchStepRows rows;
  rows.batches = parse_list("--batch", flags.batches);
  rows.threads = {runtime::num_cores()};
  if (!flags.threads.empty()) rows.threads = parse_list("--threads-per-device", flags.threads);
  for (const std::size_t count : rows.threads) {
    require(count >= 1 && count <= 1024, ErrorCode::Usage, "--threads-per-device",
            "must be from 1 to 1024, found {}", count);
  }
  require_positive("--seconds", flags.seconds);
  require_writable({{"--json", flags.json_path}});
  for (const std::string& model : flags.models) {
    rows.specs.push_back(nn::parse_mlp(model));
    const std::vector<std::size_t>& sizes = rows.specs.back().sizes;
    double width = 0;
    double num_weights = 0;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      width += static_cast<double>(sizes[i]);
      if (i > 0) num_weights += static_cast<double>(sizes[i - 1]) * static_cast<double>(sizes[i]);
    }
    require_memory("--model", 3 * sizeof(float) * num_weights);  // weights, gradients, momentum
    for (const std::size_t batch : rows.batches) {
      require(batch >= 1, ErrorCode::Usage, "--batch", "must be at least 1, found 0");
      require_memory("--batch", 2 * sizeof(float) * width * static_cast<double>(batch));
    }
  }
  return rows;
}

// Every row takes about the same time, flags.seconds.
Progress make_progress(const BenchStepFlags& flags, const BenchStepRows& rows) {
  std::vector<Progress::Row> all;
  for (const std::string& model : flags.models) {
    for (const std::size_t batch : rows.batches) {
      const Progress::Row row{fmt::format("{}, batch {}", model, batch), 0, 1};
      all.insert(all.end(), rows.threads.size(), row);
    }
  }
  return Progress(std::move(all));
}

void run_bench_step(const BenchStepFlags& flags, const CommandLine& command) {
  std::FILE* const out = flags.json_path == "-" ? stderr : stdout;
  const Device device{resolve_device_type(flags.training), 0};
  require(!flags.graph || device.type == DeviceType::cuda, ErrorCode::Usage, "--graph",
          "captures a step on a CUDA device; leave it out on the CPU");
  const BenchStepRows rows = list_rows(flags);
  nlohmann::ordered_json json = file_head("lockstep.bench-step/1", command);
  json["rows"] = nlohmann::ordered_json::array();
  fmt::print(out, "{:<24}{:>7}{:>8}{:>8}{:>12}{:>11}{:>9}\n", "model", "batch", "device", "threads",
             "median step", "samples/s", "GFLOP/s");
  Progress progress = make_progress(flags, rows);
  for (std::size_t i = 0; i < flags.models.size(); ++i) {
    const std::string& model = flags.models[i];
    for (const std::size_t batch : rows.batches) {
      for (const std::size_t count : rows.threads) {
        runtime::set_threads_per_device(count);
        progress.begin_row();
        const StepTime time = measure_step(rows.specs[i], batch, device, flags);
        const double seconds = time.median_seconds;
        const double gflops = floating_point_operations(rows.specs[i], batch) / seconds * 1e-9;
        const double rate = static_cast<double>(batch) / seconds;
        progress.end_row();
        fmt::print(out, "{:<24}{:>7}{:>8}{:>8}{:>12}{:>11.0f}{:>9.1f}\n", model, batch,
                   lockstep::to_string(device), count, trace::format_seconds(seconds), rate,
                   gflops);
        std::fflush(out);
        json["rows"].push_back({{"model", model},
                                {"batch", batch},
                                {"device", lockstep::to_string(device)},
                                {"threads", count},
                                {"graph", flags.graph},
                                {"graph_nodes", time.num_graph_nodes},
                                {"matmul_precision", flags.training.matmul_precision},
                                {"iterations", time.num_steps},
                                {"warmup_iterations", kWarmUpSteps},
                                {"median_step_seconds", seconds},
                                {"samples_per_second", rate},
                                {"gflops", gflops}});
      }
    }
  }
  if (!flags.json_path.empty()) write_json(flags.json_path, json);
}

}  // namespace

void add_bench_step_command(Command& bench, const CommandLine& command) {
  auto flags = std::make_shared<BenchStepFlags>();
  Command step = bench.add_command("step", "Time a training step on one device");
  add_training_flag(step, flags->training, "--device");
  step.add_option("--model", flags->models, "one or more, separated by commas").separated_by(',');
  step.add_option("--batch", flags->batches, "rows per step, such as 64,1024");
  step.add_option("--threads-per-device", flags->threads,
                  "CPU threads, such as 1,2 (default: all)");
  step.add_option("--seconds", flags->seconds, "how long to measure each row");
  step.add_flag("--graph", flags->graph, "launch the step as one CUDA graph");
  add_training_flag(step, flags->training, "--matmul-precision");
  step.add_option("--json", flags->json_path, "write the rows here (-: standard output)");
  step.on_run([flags, command] { run_bench_step(*flags, command); });
}

void add_bench_command(Command& program, const CommandLine& command, int& exit_code) {
  Command bench = program.add_command("bench", "Measure a training step or a collective");
  bench.require_command();
  add_bench_step_command(bench, command);
  add_bench_all_reduce_command(bench, command, exit_code);
}

}  // namespace lockstep::tools
