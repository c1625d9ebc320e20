#include "tools/whatif/predicted_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "engine/core/error.h"
#include "engine/core/text.h"
#include "engine/trace/breakdown.h"
#include "engine/trace/chrome_trace.h"
#include "simulate/predict/all_reduce_cost.h"
#include "simulate/predict/step.h"
#include "simulate/predict/step_work.h"
#include "tools/run/pipeline.h"
#include "tools/run/trace_file.h"
#include "tools/text/format.h"

namespace lockstep::tools {

namespace {

using predict::Strategy;

constexpr double kMebibyte = 1 << 20;
constexpr double kMaxChange = 1e9;
// With so many micro-batches a pipeline's devices are busy four fifths of the time: m / (m + n - 1)
// (Huang et al., "GPipe", NeurIPS 2019).
constexpr std::size_t kMicroBatchesPerDevice = 4;

// A guessed step is really half to twice as long.
constexpr std::array<double, 2> kGuess = {0.5, 2};

constexpr std::size_t kNameWidth = 20;  // mode and devices together

// The cut that the engine makes (tools/run/pipeline.h).
std::vector<std::size_t> parts_of(const PredictionTask& task, std::size_t num_parts) {
  const PipelineLayers layers = pipeline_layers(task.run.step.layers);
  std::vector<std::size_t> parts;
  for (const std::size_t i : plan::balanced_parts(layers.costs, num_parts)) {
    parts.push_back(layers.first[i]);
  }
  return parts;
}

predict::Topology changed_topology(const PredictionTask& task, const WhatIf& change) {
  predict::Topology topology = task.topology;
  const double faster = change.bandwidth > 0 ? change.bandwidth : 1;
  for (predict::Link& link : topology.links) link.bytes_per_second *= faster;
  predict::Staging& staging = topology.staging;
  for (double* const speed : {&staging.bytes_per_second, &staging.gpu_bytes_per_second,
                              &staging.socket_bytes_per_second}) {
    *speed *= faster;
  }
  if (change.peer_access) topology.peer_access = *change.peer_access;
  return topology;
}

enum class Cut { none, for_pipeline };

// guess: factor of a net's step, if it is guessed.
predict::Workload workload_of(const PredictionTask& task, const WhatIf& change,
                              const predict::DeviceProfile& device, double rows, double guess,
                              Cut cut) {
  predict::Workload workload;
  if (task.net) {
    const Net net = with_step(*task.net, device, guess);
    workload = cut == Cut::for_pipeline ? pipeline_workload(net, device, rows)
                                        : net_workload(net, device, rows);
  } else {
    workload = workload_on(task.run, device, rows);
  }
  if (change.gradient_size == 0) return workload;
  for (predict::LayerWork& layer : workload.layers) {
    for (std::size_t& bytes : layer.tensor_bytes) {
      bytes = std::max(sizeof(float), bytes * change.gradient_size / sizeof(float) / 4 * 4);
    }
  }
  return workload;
}

predict::PredictedStep predict_one(const PredictionTask& task, const WhatIf& change,
                                   Strategy strategy, std::size_t devices, std::size_t batch,
                                   double guess = 1) {
  const predict::Topology topology = changed_topology(task, change);
  predict::Network network(topology);
  predict::StepOptions options;
  options.strategy = strategy;
  options.num_devices = devices;
  options.own_plan = task.own_plan;
  options.overlap = task.overlap;
  options.reduced = task.reduced;
  const double bucket = change.bucket_mib > 0 ? change.bucket_mib : task.bucket_mib;
  options.bucket_byte_limits = {
      static_cast<std::size_t>(std::min(task.first_bucket_mib, bucket) * kMebibyte),
      static_cast<std::size_t>(bucket * kMebibyte)};
  options.schedule = task.schedule;
  options.num_chunks = task.chunks;
  options.num_micro_batches = plan::fitting_micro_batches(
      task.schedule, devices, task.micro_batches.value_or(kMicroBatchesPerDevice * devices), batch);
  const Cut cut = strategy == Strategy::pipeline ? Cut::for_pipeline : Cut::none;
  if (cut == Cut::for_pipeline && !task.net) options.parts = parts_of(task, devices * task.chunks);
  const std::size_t shares =
      predict::is_data_parallel(strategy) ? devices : options.num_micro_batches;
  options.num_accumulated = std::min(task.accumulate, batch);  // one device, as without the change
  const double rows =
      static_cast<double>(batch) / static_cast<double>(shares * options.num_accumulated);
  if (change.parameter_size > 0) {
    options.gathered_share = static_cast<double>(change.parameter_size) / sizeof(float);
  }
  if (task.net) {
    options.gradients = predict::StepOptions::Gradients::copied;  // PyTorch's default
    options.python = python_host(with_step(*task.net, topology.device, guess));
  }
  return predict::predict_step(
      network, workload_of(task, change, topology.device, rows, guess, cut), options);
}

// Maps a lane of the simulation to a lane of a trace.
trace::Lane lane_of(predict::WorkLane lane) {
  if (lane == predict::WorkLane::compute) return trace::Lane::compute;
  if (lane == predict::WorkLane::comm) return trace::Lane::comm;
  return lane == predict::WorkLane::host ? trace::Lane::host : trace::Lane::copy;
}

std::int64_t nanoseconds(double seconds) {
  return static_cast<std::int64_t>(std::llround(seconds * 1e9));
}

// "-8/+9 %": how far the step may lie from the prediction; "0 %" if it is given, "?" if unverified.
std::string band_text(const PredictedRow& row) {
  if (!row.step_band) return row.devices == 1 ? "0 %" : "?";
  const auto percent = [&](double seconds) {
    return std::lround(100 * std::abs(seconds / row.step.step_seconds - 1));
  };
  return fmt::format("-{}/+{} %", percent((*row.step_band)[0]), percent((*row.step_band)[1]));
}

}  // namespace

namespace {

// One value of a change; false for one that the change cannot have.
bool set_change(const std::string& name, std::string text, WhatIf& change) {
  if (name == "peer_access") {
    change.peer_access = text == "on" ? predict::PeerAccess::all : predict::PeerAccess::listed;
    return text == "on" || text == "off";
  }
  if (name == "gradients") {
    change.gradient_size = text == "bf16" ? 2 : 4;
    return text == "bf16" || text == "fp32";
  }
  if (name == "parameters") {
    change.parameter_size = text == "bf16" ? 2 : 4;
    return text == "bf16" || text == "fp32";
  }
  if (name == "bandwidth" && text.ends_with("x")) text.pop_back();
  double value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || stop != text.data() + text.size()) return false;
  if (name == "bucket_mib") change.bucket_mib = value;
  if (name == "bandwidth") change.bandwidth = value;
  if (name == "batch") change.batch = static_cast<std::size_t>(std::clamp(value, 0.0, kMaxChange));
  return value > 0 && value <= kMaxChange && (name != "batch" || value == std::floor(value));
}

}  // namespace

std::vector<WhatIf> parse_what_if(const std::string& word) {
  const std::size_t equals = word.find('=');
  const std::string name = word.substr(0, equals);
  constexpr std::array kNames = {"bucket_mib",  "bandwidth", "batch",
                                 "peer_access", "gradients", "parameters"};
  require(std::ranges::find(kNames, name) != kNames.end() && equals != std::string::npos,
          ErrorCode::Usage, "--what-if",
          "expected bucket_mib=1,25,100, bandwidth=2x, batch=64,256, peer_access=on, "
          "gradients=bf16 or parameters=bf16, found '{}'",
          shown(word));
  std::vector<WhatIf> changes;
  for (std::size_t begin = equals + 1; begin <= word.size();) {
    const std::size_t end = std::min(word.find(',', begin), word.size());
    const std::string text = word.substr(begin, end - begin);
    WhatIf change{name + "=" + text};
    require(set_change(name, text, change), ErrorCode::Usage, "--what-if",
            "'{}' is not a value of {}", shown(text), name);
    changes.push_back(change);
    begin = end + 1;
  }
  return changes;
}

std::size_t batch_of(const PredictionTask& task, const WhatIf& change, std::size_t devices) {
  if (change.batch > 0) return change.batch;
  return task.net ? task.net->batch_per_gpu * devices : task.run.step.batch;
}

namespace {

std::size_t num_pipeline_layers(const PredictionTask& task) {
  return task.net ? num_pipeline_layers(*task.net)
                  : pipeline_layers(task.run.step.layers).costs.size();
}

}  // namespace

bool is_possible(const PredictionTask& task, Strategy strategy, std::size_t devices) {
  const bool is_too_deep =
      strategy == Strategy::pipeline && devices * task.chunks > num_pipeline_layers(task);
  const bool spans_hosts =
      predict::is_of_one_process(strategy) && devices > task.topology.gpus_per_host();
  return !is_too_deep && !spans_hosts && batch_of(task, {}, devices) >= devices * task.accumulate;
}

void require_possible(const PredictionTask& task, const std::vector<WhatIf>& changes) {
  const predict::Topology& topology = task.topology;
  double weight_bytes = task.net ? task.net->gradient_bytes() : 0;
  for (const FileLayer& layer : task.run.step.layers) {
    weight_bytes += static_cast<double>(layer.parameter_bytes);
  }
  // A family's answer says which mode fits.
  require((task.net && task.net->memory) || 2 * weight_bytes <= topology.device.memory_bytes,
          ErrorCode::Usage, "--topology",
          "weights and gradients take {:.3g} GB of each device; '{}' ({}) has {:g} GB of memory",
          2 * weight_bytes / 1e9, topology.name, topology.device.name,
          topology.device.memory_bytes / 1e9);
  const bool has_batches =
      std::ranges::any_of(changes, [](const WhatIf& change) { return change.batch > 0; });
  for (const std::size_t devices : task.devices) {
    for (const Strategy strategy : task.strategies) {
      const bool accumulates =
          strategy != Strategy::data_parallel && strategy != Strategy::pipeline;
      require(task.accumulate == 1 || accumulates, ErrorCode::Usage, "--accumulate",
              "{} communicates in every pass; use ddp", predict::to_string(strategy));
      require(!predict::is_of_one_process(strategy) || devices <= topology.gpus_per_host(),
              ErrorCode::Usage, "--strategy",
              "{} is one process, whose devices are all in one host: '{}' has {} a host, {} were "
              "asked for; use ddp",
              predict::to_string(strategy), topology.name, topology.gpus_per_host(), devices);
    }
    const bool has_pipeline =
        std::ranges::find(task.strategies, Strategy::pipeline) != task.strategies.end();
    if (has_pipeline) {
      predict::require_layer_for_each(devices * task.chunks, num_pipeline_layers(task));
    }
    for (const WhatIf& change : changes) {
      if (has_batches && change.batch == 0) continue;
      const std::size_t batch = batch_of(task, change, devices);
      const std::size_t needed = devices * task.accumulate;
      require(batch >= needed, ErrorCode::Usage, "--devices",
              "{} a step {} too few for {} devices{}; --what-if batch={} gives each one",
              count_text(batch, "row"), batch == 1 ? "is" : "are", devices,
              task.accumulate == 1 ? "" : fmt::format(" of {} micro-batches", task.accumulate),
              needed);
    }
  }
}

namespace {

// How many times as long, or as short, a row's step may be.
double band_factor(const PredictionTask& task, const PredictedRow& row) {
  double factor = row.record ? row.record->factor : 1;
  const bool is_computed = !task.net && !is_measured_on(task.run, task.topology.device);
  if (is_computed) factor *= record_of_computed_kernels().factor;
  return factor;
}

// Samples per second, relative to one device under the same assumption.
double speedup_of(const PredictionTask& task, const WhatIf& change, std::size_t devices,
                  double seconds, double single_seconds) {
  const auto batch = static_cast<double>(batch_of(task, change, devices));
  return batch / static_cast<double>(batch_of(task, change)) * single_seconds / seconds;
}

void set_bands(const PredictionTask& task, const WhatIf& change, PredictedRow& row) {
  const bool is_guessed = task.net && !task.net->step_seconds;
  if (row.devices > 1 && !row.record) return;
  const double factor = band_factor(task, row);
  if (factor == 1 && !is_guessed) {
    if (task.net) row.speedup_band = {row.speedup, row.speedup};
    return;
  }
  const auto step = [&](Strategy strategy, std::size_t devices, double guess) {
    return predict_one(task, change, strategy, devices, batch_of(task, change, devices), guess)
        .step_seconds;
  };
  std::array<double, 2> seconds = {row.step.step_seconds, row.step.step_seconds};
  std::array<double, 2> speedups = {row.speedup, row.speedup};
  for (std::size_t i = 0; is_guessed && i < 2; ++i) {
    seconds[i] = step(row.strategy, row.devices, kGuess[i]);
    speedups[i] =
        speedup_of(task, change, row.devices, seconds[i], step(Strategy::single, 1, kGuess[i]));
  }
  row.step_band = {seconds[0] / factor, seconds[1] * factor};
  if (task.net) {
    row.speedup_band = {std::ranges::min(speedups) / factor, std::ranges::max(speedups) * factor};
  }
}

}  // namespace

std::vector<PredictedRow> predict_rows(const PredictionTask& task, const WhatIf& change) {
  std::vector<PredictedRow> rows;
  const predict::Topology topology = changed_topology(task, change);
  predict::Network network(topology);
  const auto add = [&](Strategy strategy, std::size_t devices) {
    PredictedRow row;
    row.strategy = strategy;
    row.devices = devices;
    row.batch = batch_of(task, change, devices);
    row.what_if = change.text;
    row.shows_samples = task.net.has_value();
    row.step = predict_one(task, change, strategy, devices, row.batch);
    // The published rows of dp are of PyTorch's, which the engine's is not.
    const bool is_own = strategy == Strategy::data_parallel && !task.net;
    if (!is_own) row.record = record_of(network, strategy, devices);
    const auto num_steps =
        static_cast<double>((task.run.rows_per_epoch + row.batch - 1) / row.batch);
    row.epoch_seconds = num_steps * row.step.step_seconds;
    if (!rows.empty()) {
      row.speedup =
          speedup_of(task, change, devices, row.step.step_seconds, rows[0].step.step_seconds);
    }
    set_bands(task, change, row);
    rows.push_back(std::move(row));
  };
  add(Strategy::single, 1);
  for (const Strategy strategy : task.strategies) {
    if (strategy == Strategy::single) continue;
    for (const std::size_t devices : task.devices) {
      const bool has_rows = devices * task.accumulate <= batch_of(task, change, devices);
      if (devices > 1 && has_rows) add(strategy, devices);
    }
  }
  return rows;
}

std::string predicted_header(const PredictionTask& task) {
  return fmt::format("{:<12}{:>8}{:>8}{:>8}{:>9}{:>8}{:>6}{:>10}{:>11}", "mode", "devices",
                     task.net ? "per s" : "epoch", "step", "speed-up", "effic.", "busy",
                     "comm/step", "band");
}

namespace {

// Samples per second, in at most seven characters.
std::string samples_text(double per_second) {
  if (per_second < 1e4) return fmt::format("{:.4g}", per_second);
  return per_second < 1e7 ? fmt::format("{:.0f}", per_second) : fmt::format("{:.1e}", per_second);
}

}  // namespace

std::string name_columns(const PredictedRow& row) {
  const std::string count = std::to_string(row.devices);
  std::string name(predict::to_string(row.strategy));
  const bool is_long = name.size() + count.size() >= kNameWidth;
  name += is_long ? "\n" + std::string(kNameWidth - count.size(), ' ')
                  : std::string(kNameWidth - name.size() - count.size(), ' ');
  return name + count;
}

std::string predicted_line(const PredictedRow& row) {
  const double step = row.step.step_seconds;
  const std::string pace = row.shows_samples ? samples_text(static_cast<double>(row.batch) / step)
                                             : trace::format_seconds(row.epoch_seconds);
  return fmt::format(
      "{}{:>8}{:>8}{:>9}{:>6.0f} %{:>6}{:>10}{:>11}", name_columns(row), pace,
      trace::format_seconds(step), format_factor(row.speedup),
      100 * row.speedup / static_cast<double>(row.devices),
      fmt::format("{:.0f} %", 100 * row.step.busy_fraction),
      format_bytes(static_cast<std::size_t>(std::llround(row.step.comm_bytes_per_device))),
      band_text(row));
}

std::vector<std::string> record_notes(const std::vector<PredictedRow>& rows) {
  std::vector<std::string> notes;
  const auto add = [&](std::string note) {
    if (std::ranges::find(notes, note) == notes.end()) notes.push_back(std::move(note));
  };
  for (const PredictedRow& row : rows) {
    if (row.record) add(record_text(*row.record));
    if (row.devices > 1 && !row.record) {
      add(fmt::format("not verified: no published row is like {} here",
                      predict::to_string(row.strategy)));
    }
    if (row.devices == 1 && row.step_band && !row.speedup_band) {
      add(record_text(record_of_computed_kernels()));
    }
  }
  return notes;
}

nlohmann::ordered_json row_json(const PredictedRow& row, const predict::Topology& topology) {
  const double step = row.step.step_seconds;
  nlohmann::ordered_json json{
      {"mode", predict::to_string(row.strategy)},
      {"devices", row.devices},
      {"physical_devices", row.devices},
      {"virtual", false},
      {"batch", row.batch},
      {"kind", "predicted"},
      {"topology", topology.name},
      {"epoch_seconds", {row.epoch_seconds}},
      {"median_epoch_seconds", row.epoch_seconds},
      {"step_seconds", step},
      {"samples_per_second", static_cast<double>(row.batch) / step},
      {"speedup", row.speedup},
      {"ideal_speedup", row.devices},
      {"efficiency", row.speedup / static_cast<double>(row.devices)},
      {"busy_fraction", std::vector<double>(row.devices, row.step.busy_fraction)}};
  for (const auto& [name, part] : trace::kBreakdownParts) {
    json["breakdown_seconds"][name] = row.step.breakdown.*part;
  }
  if (row.step_band) json["step_seconds_band"] = *row.step_band;
  if (row.devices > 1) {
    json["band_verified"] = row.record.has_value();
    if (row.record) json["class"] = row.record->name;
  }
  if (row.speedup_band) json["speedup_band"] = *row.speedup_band;
  json["overlapped_comm_seconds"] = row.step.breakdown.overlapped_comm;
  json["comm_bytes_per_device_per_step"] = row.step.comm_bytes_per_device;
  if (!row.what_if.empty()) json["what_if"] = row.what_if;
  return json;
}

void save_predicted_trace(const std::string& path, const PredictedRow& row) {
  trace::Recording recording;
  trace::ChromeTraceOptions options;
  for (std::size_t device = 0; device < std::min(row.devices, kMostPredictedDevices); ++device) {
    const int rank = static_cast<int>(device);
    options.process_names[rank] = fmt::format("device {}, predicted", device);
    trace::Span step;
    step.name = kPredictedStep;
    step.end_ns = nanoseconds(row.step.step_seconds);
    step.rank = rank;
    step.lane = trace::Lane::host;
    step.category = trace::Category::step;
    step.sequence = 0;
    recording.spans.push_back(step);
    for (std::size_t i = 0; i < row.step.work.size(); ++i) {
      const predict::Work& work = row.step.work[i];
      if (work.device != predict::kEveryDevice && work.device != device) continue;
      trace::Span span;
      span.name = work.name;
      span.begin_ns = nanoseconds(row.step.times[i].begin);
      span.end_ns = nanoseconds(row.step.times[i].end);
      span.num_bytes = work.num_bytes;
      span.rank = rank;
      span.lane = lane_of(work.lane);
      span.category = work.category;
      recording.spans.push_back(span);
    }
  }
  std::ranges::stable_sort(recording.spans, {}, &trace::Span::begin_ns);
  trace::save_chrome_trace(path, recording, options);
}

namespace {

constexpr std::size_t kArraysPerDevice = 32;

nlohmann::ordered_json predict_row(predict::Network& network, std::size_t bytes,
                                   std::size_t devices) {
  const auto size = static_cast<double>(bytes);
  nlohmann::ordered_json row{{"devices", devices}, {"bytes", bytes}};
  predict::NcclGroup group = predict::nccl_group(network, devices);
  row["nvls_seconds"] = nullptr;
  if (group.nvls_bytes_per_second > 0) {
    row["nvls_seconds"] =
        predict::nccl_all_reduce_seconds(group, size, predict::NcclAlgorithm::nvls);
  }
  group.nvls_bytes_per_second = 0;
  row["ring_seconds"] = predict::nccl_all_reduce_seconds(group, size);
  const std::vector<std::size_t> arrays(kArraysPerDevice * devices,
                                        bytes / (kArraysPerDevice * devices));
  const predict::Exchange exchange = predict::reduce_on_devices(network, devices, arrays);
  row["on_devices_seconds"] = exchange.reduce_seconds + exchange.broadcast_seconds;
  // Some arrays are copied while others are summed, so the longer of the two counts.
  row["through_cpu_seconds"] = std::max(
      predict::host_seconds(network, devices, size, predict::HostWay::up),
      predict::host_sum_seconds(network.topology().host_thread_bytes_per_second, devices, size));
  predict::Traffic copy(network);
  copy.add(network.gpu(0), devices > 1 ? network.gpu(1) : network.cpu_of(0), 1);
  row["copy_gb_per_s"] = 1e-9 / copy.wire_seconds();
  return row;
}

}  // namespace

nlohmann::ordered_json predict_all_reduces(const predict::Topology& topology, std::size_t bytes,
                                           const std::vector<std::size_t>& devices) {
  predict::Network network(topology);
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const std::size_t count : devices) rows.push_back(predict_row(network, bytes, count));
  return rows;
}

std::string all_reduce_table(const nlohmann::ordered_json& rows) {
  std::string text = fmt::format("{:>7}{:>12}{:>12}{:>12}{:>13}{:>15}\n", "devices", "NCCL ring",
                                 "NCCL NVLS", "on devices", "through CPU", "copy");
  const auto seconds = [](const nlohmann::ordered_json& value) {
    return value.is_null() ? "-" : trace::format_seconds(value);
  };
  for (const nlohmann::ordered_json& row : rows) {
    text += fmt::format("{:>7}{:>12}{:>12}{:>12}{:>13}{:>10.1f} GB/s\n", row["devices"].dump(),
                        seconds(row["ring_seconds"]), seconds(row["nvls_seconds"]),
                        seconds(row["on_devices_seconds"]), seconds(row["through_cpu_seconds"]),
                        row["copy_gb_per_s"].get<double>());
  }
  return text;
}

namespace {

std::string times(double speedup) {
  return fmt::format("{:.{}f}x", speedup, speedup < 1 ? 2 : 1);
}

double compute_seconds(const trace::StepBreakdown& step) {
  return step.forward + step.backward + step.optimizer + step.host;
}

std::string limit(const PredictedRow& single, const PredictedRow& row) {
  const trace::StepBreakdown& step = row.step.breakdown;
  const double share =
      static_cast<double>(row.batch) / static_cast<double>(row.devices * single.batch);
  const double slower = compute_seconds(step) - share * compute_seconds(single.step.breakdown);
  const bool is_pipeline = !predict::is_data_parallel(row.strategy);
  const std::vector<std::pair<double, std::string>> losses = {
      {step.exposed_comm + step.copy, "exposed communication"},
      {step.wait, is_pipeline ? "stages that wait for each other"
                              : fmt::format("waiting for the slowest of {} GPUs", row.devices)},
      {slower, is_pipeline
                   ? "work that one GPU alone does not have: each micro-batch's launches, and its "
                     "gradients, which are added up"
               : row.strategy == Strategy::data_parallel && row.shows_samples
                   ? "Python, which copies and launches one replica after the other"
                   : "work that one GPU alone does not have: gradients copied into buckets and "
                     "back, computation slowed by communication"}};
  const auto& [seconds, name] =
      *std::ranges::max_element(losses, {}, [](const auto& loss) { return loss.first; });
  return fmt::format("{} ({} of the {} step on {} GPUs)", name, trace::format_seconds(seconds),
                     trace::format_seconds(row.step.step_seconds), row.devices);
}

}  // namespace

std::string speedup_sentence(std::span<const PredictedRow> rows) {
  const PredictedRow& single = rows.front();
  const std::size_t batch = single.batch;
  if (rows.size() == 1) {
    return fmt::format("1 GPU: {} samples a second with {} a step",
                       samples_text(static_cast<double>(batch) / single.step.step_seconds),
                       count_text(batch, "sample"));
  }
  std::string text;
  for (const PredictedRow& row : rows.subspan(1)) {
    text += fmt::format("{}{} GPUs: {}", text.empty() ? "" : ", ", row.devices, times(row.speedup));
    if (!row.speedup_band) continue;
    const auto [low, high] = *row.speedup_band;
    text += fmt::format(" (band {} to {})", times(low), times(high));
  }
  const PredictedRow& largest = *std::ranges::max_element(rows, {}, &PredictedRow::devices);
  const bool is_weak = largest.batch != batch;
  return fmt::format("{} the samples per second of one GPU, with {} a step {}; limited by {}", text,
                     count_text(batch, "sample"),
                     is_weak ? "on each (weak scaling)" : "over all of them (strong scaling)",
                     limit(single, largest));
}

}  // namespace lockstep::tools
