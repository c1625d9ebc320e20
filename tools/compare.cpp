// lockstep compare: the same training in several ways, as a table of epoch times, with proof that
// every way computed the same weights.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <memory>

#include "engine/core/error.h"
#include "engine/nn/mlp.h"
#include "engine/runtime/logical_device.h"
#include "engine/trace/recorder.h"
#include "tools/commands.h"
#include "tools/report/row_table.h"
#include "tools/report/run_file.h"
#include "tools/report/trace_file.h"
#include "tools/report/workload.h"
#include "tools/training/trainer.h"

namespace lockstep::tools {
namespace {

struct CompareFlags {
  TrainingFlags training;
  std::vector<std::string> modes = {"dp", "ddp"};
  std::vector<std::size_t> device_counts = {1, 2, 4, 8};
};

std::vector<Mode> parse_modes(const std::vector<std::string>& names) {
  std::vector<Mode> modes;
  for (const std::string& name : names) {
    require(name == "dp" || name == "ddp", ErrorCode::Usage, "--modes",
            "unknown mode '{}'; use dp, ddp or dp,ddp", name);
    modes.push_back(name == "dp" ? Mode::data_parallel : Mode::ddp);
  }
  return modes;
}

std::vector<DevicePlacement> list_placements(const CompareFlags& flags, DeviceType type) {
  std::vector<DevicePlacement> placements{{Mode::single, {Device{type, 0}}}};
  for (const Mode mode : parse_modes(flags.modes)) {
    for (const std::size_t count : flags.device_counts) {
      TrainingFlags training = flags.training;
      require(count >= 1 && count <= 4096, ErrorCode::Usage, "--devices",
              "expected counts such as 1,2,4,8, found {}", count);
      training.devices = static_cast<int>(count);
      placements.push_back({mode, resolve_devices(training, type)});
    }
  }
  return placements;
}

// Trains once in every way; prints a line as soon as it is known.
std::vector<RunRow> run_rows(const TrainingTask& task, const TrainingFlags& flags,
                             const std::vector<DevicePlacement>& placements, std::FILE* out) {
  std::vector<RunRow> rows;
  fmt::print(out, "{}\n", table_header());
  for (const DevicePlacement& placement : placements) {
    apply_threads_per_device(flags, placement.devices.size());
    RunRow row;
    row.placement = placement;
    row.threads_per_device = runtime::threads_per_device();
    trace::start();
    row.result = train(task, placement);
    trace::stop();
    row.weight_tolerance = weight_tolerance(task.dtype, task.num_steps, task.summation);
    if (!rows.empty()) {
      row.max_abs_weight_diff = max_abs_difference(row.result.weights, rows[0].result.weights);
    }
    rows.push_back(std::move(row));
    fmt::print(out, "{}\n", table_line(rows.back(), rows[0]));
    std::fflush(out);
  }
  return rows;
}

// Exact sampling must agree with one device; torch's padding and per-rank means cannot.
void require_equal_weights(const TrainingTask& task, const std::vector<RunRow>& rows,
                           std::FILE* out) {
  if (task.sampler == Sampler::torch) {
    fmt::print(out,
               "weights: not compared; --sampler torch pads the rows and averages a mean per rank, "
               "so it trains on other numbers than one device\n");
    return;
  }
  std::vector<std::string> differing;
  for (const RunRow& row : rows) {
    if (row.weights_match()) continue;
    differing.push_back(fmt::format("{} on {} devices by {:.3g}", to_string(row.placement.mode),
                                    row.placement.devices.size(), row.max_abs_weight_diff));
  }
  const double tolerance = rows[0].weight_tolerance;
  require(differing.empty(), ErrorCode::Numeric, "compare",
          "weights differ from the single-device run by more than {:.3g}: {}", tolerance,
          fmt::join(differing, ", "));
  fmt::print(out, "weights: every row equals the single-device run within {:.3g} ({}, {} steps)\n",
             tolerance, lockstep::to_string(task.dtype), task.num_steps);
}

void run_compare(const CompareFlags& flags, const CommandLine& command) {
  const TrainingFlags& training = flags.training;
  std::FILE* const out = training.json_path == "-" ? stderr : stdout;
  require(!flags.modes.empty() && !flags.device_counts.empty(), ErrorCode::Usage, "compare",
          "--modes and --devices must name at least one each");
  const DeviceType type = resolve_device_type(training);
  const std::vector<DevicePlacement> placements = list_placements(flags, type);
  const std::size_t most =
      *std::max_element(flags.device_counts.begin(), flags.device_counts.end());
  if (training.bitwise) {
    for (const std::size_t count : flags.device_counts) make_task(training, count);
  }
  const TrainingTask task = make_task(training, training.bitwise ? 1 : most);
  const std::size_t cores = runtime::num_cores();
  fmt::print(out, "using device: {} ({} {})\n", lockstep::to_string(type), cores,
             cores == 1 ? "core" : "cores");
  fmt::print(out, "{} on {}: {} training rows, batch {}, {} epochs, {} steps\n", task.model,
             training.dataset, task.data->train.num_rows(), task.batch, task.num_epochs(),
             task.num_steps);
  const std::vector<RunRow> rows = run_rows(task, training, placements, out);
  const std::string note = sharing_note(rows);
  if (!note.empty()) fmt::print(out, "{}\n", note);
  if (!training.trace_path.empty()) write_trace(training, placements.back());
  if (!training.json_path.empty()) {
    apply_threads_per_device(training, 1);
    const double optimizer_seconds =
        rows[0].result.breakdown ? rows[0].result.breakdown->optimizer : 0;
    write_json(training.json_path,
               make_run_file(command, training, task, rows,
                             measure_workload(task, placements[0].devices[0], optimizer_seconds)));
  }
  require_equal_weights(task, rows, out);
}

}  // namespace

void add_compare_command(CLI::App& app, const CommandLine& command) {
  auto flags = std::make_shared<CompareFlags>();
  CLI::App* compare =
      app.add_subcommand("compare", "Compare epoch times of one device, dp and ddp");
  add_training_flags(*compare, flags->training);
  compare->add_option("--modes", flags->modes, "dp, ddp or both")
      ->delimiter(',')
      ->capture_default_str();
  compare->add_option("--devices", flags->device_counts, "numbers of devices, such as 1,2,4,8")
      ->delimiter(',')
      ->capture_default_str();
  compare->callback([flags, command] { run_compare(*flags, command); });
}

}  // namespace lockstep::tools
