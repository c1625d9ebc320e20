#include "tools/prediction/published_all_reduce.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "engine/core/text.h"
#include "simulate/predict/all_reduce_cost.h"
#include "simulate/predict/step_work.h"
#include "tools/prediction/all_reduce_fit.h"
#include "tools/prediction/hardware.h"

namespace lockstep::tools {
namespace {

using predict::NcclAlgorithm;

// What a row is about; rows of one kind share their constants.
enum class Kind { ring, nvls, on_devices, through_cpu, copy };

struct Row {
  AllReducePrediction published;
  std::size_t index = 0;  // in the table
  Kind kind = Kind::ring;
  predict::Topology topology;
  bool is_fitted = false;

  double size() const { return published.bytes; }
  double devices() const { return static_cast<double>(published.gpus); }
  // What the algorithm moves for a byte of the buffer.
  double traffic_per_byte() const {
    return kind == Kind::nvls ? 1 : 2 * (devices() - 1) / devices();
  }
  double seconds(double value) const {
    if (published.unit == "microseconds") return value * 1e-6;
    if (published.unit == "milliseconds") return value * 1e-3;
    return size() * 2 * (devices() - 1) / devices() / (value * 1e9);
  }
  double value(double seconds) const {
    if (published.unit == "microseconds") return seconds * 1e6;
    if (published.unit == "milliseconds") return seconds * 1e3;
    return size() * 2 * (devices() - 1) / devices() / seconds / 1e9;
  }
};

bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

Kind kind_of(const CsvTable& table, Row& row) {
  const AllReducePrediction& published = row.published;
  if (published.unit == "GBps") return Kind::copy;
  if (published.unit != "busbw_GBps" && published.unit != "microseconds" &&
      published.unit != "milliseconds") {
    table.fail_at(row.index, fmt::format("unit '{}' is none of busbw_GBps, microseconds, "
                                         "milliseconds, GBps",
                                         shown(published.unit)));
  }
  if (published.gpus < 2) table.fail_at(row.index, "an all-reduce needs 2 gpus or more");
  if (published.bytes == 0 && published.unit != "busbw_GBps") {
    table.fail_at(row.index, "bytes are missing");
  }
  if (contains(published.algorithm, "CPU")) return Kind::through_cpu;
  if (contains(published.algorithm, "reduce+broadcast")) return Kind::on_devices;
  const bool is_ring =
      contains(published.algorithm, "ring") || contains(published.algorithm, "NVLS off");
  predict::Network network(row.topology);
  const predict::NcclGroup group = predict::nccl_group(network, published.gpus);
  return group.nvls_bytes_per_second > 0 && !is_ring ? Kind::nvls : Kind::ring;
}

std::vector<Row> read_rows(const CsvTable& table) {
  std::vector<Row> rows;
  for (std::size_t i = 0; i < table.num_rows(); ++i) {
    Row row;
    row.index = i;
    AllReducePrediction& published = row.published;
    published.hardware = table.cell(i, "hardware");
    published.interconnect = table.cell(i, "interconnect");
    published.algorithm = table.cell(i, "algorithm");
    published.unit = table.cell(i, "unit");
    published.gpus = table.count(i, "gpus", kMaxPublishedGpus);
    published.bytes = table.number(i, "bytes").value_or(0);
    published.measured = table.needed_number(i, "value");
    const std::string link = published.unit == "GBps" ? "" : published.interconnect;
    FoundHardware found = find_hardware(published.hardware, link, published.gpus);
    if (!found.topology) table.fail_at(i, found.problem);
    row.topology = std::move(*found.topology);
    published.topology = row.topology.name;
    row.kind = kind_of(table, row);
    rows.push_back(std::move(row));
  }
  return rows;
}

double nccl_seconds(Row& row, double bytes) {
  predict::Network network(row.topology);
  const NcclAlgorithm algorithm =
      row.kind == Kind::nvls ? NcclAlgorithm::nvls : NcclAlgorithm::automatic;
  predict::NcclGroup group = predict::nccl_group(network, row.published.gpus);
  if (row.kind == Kind::ring) group.nvls_bytes_per_second = 0;
  return predict::nccl_all_reduce_seconds(group, bytes, algorithm);
}

// What the preset says without any fit, in the row's unit. A bandwidth without bytes is that of
// very large buffers.
double preset_value(Row& row) {
  predict::Network network(row.topology);
  const std::size_t devices = row.published.gpus;
  switch (row.kind) {
    case Kind::copy: {
      const bool is_peer = devices > 1;
      const std::size_t to = is_peer ? network.gpu(1) : network.cpu_of(0);
      predict::Traffic traffic(network);
      traffic.add(network.gpu(0), to, 1);
      return 1e-9 / traffic.wire_seconds();
    }
    case Kind::on_devices: {
      // Many arrays, as many bytes on each device.
      constexpr std::size_t kArrays = 32;
      const auto part =
          static_cast<std::size_t>(row.size() / static_cast<double>(devices * kArrays));
      const std::vector<std::size_t> arrays(devices * kArrays, part);
      const predict::Exchange exchange = predict::reduce_on_devices(network, devices, arrays);
      return row.value(exchange.reduce_seconds + exchange.broadcast_seconds);
    }
    case Kind::through_cpu:
      return row.value(std::max(predict::to_host_seconds(network, devices, row.size()),
                                predict::host_sum_seconds(row.topology.host_thread_bytes_per_second,
                                                          devices, row.size())));
    default:
      if (row.size() > 0) return row.value(nccl_seconds(row, row.size()));
      constexpr double kLarge = 16e9;
      return kLarge * 2 * (row.devices() - 1) / row.devices() / nccl_seconds(row, kLarge) / 1e9;
  }
}

// One constant: how much faster or slower than the preset the fitted rows are, as a geometric mean.
double fitted_scale(const std::vector<Row*>& fitted) {
  double logs = 0;
  for (Row* row : fitted) logs += std::log(row->published.measured / preset_value(*row));
  return std::exp(logs / static_cast<double>(fitted.size()));
}

void predict_kind(const std::vector<Row*>& rows) {
  std::vector<Row*> fitted;
  std::vector<AllReduceSample> samples;
  for (Row* row : rows) {
    if (!row->is_fitted) continue;
    fitted.push_back(row);
    if (row->size() > 0) {
      samples.push_back({row->size(), row->size() * row->traffic_per_byte(),
                         row->seconds(row->published.measured)});
    }
  }
  const bool is_nccl = rows[0]->kind == Kind::ring || rows[0]->kind == Kind::nvls;
  const bool has_sizes = std::ranges::any_of(
      samples, [&](const AllReduceSample& sample) { return sample.bytes != samples[0].bytes; });
  const bool has_curve = is_nccl && has_sizes && samples.size() == fitted.size();
  const AllReduceFit fit = has_curve ? fit_all_reduce(samples) : AllReduceFit{};
  for (Row* row : rows) {
    if (row->is_fitted) continue;
    if (has_curve && row->size() > 0) {
      row->published.predicted =
          row->value(fit.seconds(row->size(), row->size() * row->traffic_per_byte()));
    } else {
      const double scale = fitted.empty() ? 1 : fitted_scale(fitted);
      row->published.predicted = preset_value(*row) * scale;
    }
  }
}

}  // namespace

std::vector<AllReducePrediction> predict_all_reduces(const CsvTable& table) {
  table.require_columns(
      {"hardware", "interconnect", "algorithm", "gpus", "bytes", "value", "unit"});
  std::vector<Row> rows = read_rows(table);
  std::map<std::pair<std::string, std::string>, std::vector<Row*>> by_hardware;
  for (Row& row : rows) {
    by_hardware[{row.published.hardware, row.published.interconnect}].push_back(&row);
  }
  for (auto& [name, group] : by_hardware) {
    std::map<Kind, std::vector<Row*>> by_kind;
    for (std::size_t i = 0; i < group.size(); ++i) {
      group[i]->is_fitted = group.size() > 1 && i % 2 == 0;
      by_kind[group[i]->kind].push_back(group[i]);
    }
    for (auto& [kind, same] : by_kind) predict_kind(same);
  }
  std::vector<AllReducePrediction> predictions;
  for (const Row& row : rows) {
    if (!row.is_fitted) predictions.push_back(row.published);
  }
  return predictions;
}

}  // namespace lockstep::tools
