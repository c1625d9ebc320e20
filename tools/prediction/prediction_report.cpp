#include "tools/prediction/prediction_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "tools/report/row_table.h"

namespace lockstep::tools {
namespace {

// "+5.2 %", at most eight letters.
std::string percent(double error) {
  if (error >= 100) return ">9999 %";
  return fmt::format("{:+.{}f} %", 100 * error, error < 9.9995 ? 1 : 0);
}

struct Errors {
  double total = 0;
  double largest = 0;
  std::size_t count = 0;
  std::size_t right = 0;  // directions

  void add(double error) {
    total += std::abs(error);
    largest = std::max(largest, std::abs(error));
    ++count;
  }
  std::string text() const {
    const double mean = total / static_cast<double>(count);
    return fmt::format("mean {}, max {}", percent(mean).substr(mean < 100 ? 1 : 0),
                       percent(largest).substr(largest < 100 ? 1 : 0));
  }
};

std::string cut(const std::string& text, std::size_t width) {
  return text.size() <= width ? text : text.substr(0, width - 2) + "..";
}

// Three significant digits, so that tables of seconds and of images look alike; at most nine
// letters.
std::string short_number(double value) {
  const double size = std::abs(value);
  if (size < 0.001 || size >= 1e8) return fmt::format("{:.2e}", value);
  const int decimals = size < 1 ? 4 : size < 10 ? 2 : size < 1000 ? 1 : 0;
  return fmt::format("{:.{}f}", value, decimals);
}

// Which machine each hardware was taken for, a line each.
using Machines = std::map<std::pair<std::string, std::string>, std::string>;

void print_machines(const Machines& machines, std::FILE* out) {
  for (const auto& [name, topology] : machines) {
    const auto& [hardware, interconnect] = name;
    fmt::print(out, "{}\n", wrap(fmt::format("{}, {}: as {}", hardware, interconnect, topology)));
  }
}

}  // namespace

void print_predictions(const std::vector<ScalingPrediction>& predictions, std::FILE* out) {
  fmt::print(out, "{:<4}{:<15}{:<13}{:<14}{:>4}{:>10}{:>10}{:>9}\n", "set", "hardware", "model",
             "strategy", "gpus", "predicted", "measured", "error");
  std::map<std::string, Errors> sets;
  Machines machines;
  bool any_superlinear = false;
  for (const ScalingPrediction& prediction : predictions) {
    const PublishedRow& row = prediction.row;
    fmt::print(out, "{:<4}{:<15}{:<13}{:<14}{:>4}{:>10}{:>10}{:>9}{}\n", cut(row.set, 3),
               cut(row.hardware, 14), cut(row.model, 12), cut(row.strategy_name, 13), row.gpus,
               short_number(prediction.predicted), short_number(row.value),
               percent(prediction.error()), prediction.is_superlinear() ? "*" : "");
    machines[{row.hardware, row.interconnect}] = prediction.topology;
    any_superlinear = any_superlinear || prediction.is_superlinear();
    Errors& errors = sets[row.set];
    errors.add(prediction.error());
    errors.right += prediction.has_right_direction() ? 1 : 0;
  }
  for (const auto& [set, errors] : sets) {
    fmt::print(out, "{}\n",
               wrap(fmt::format("set {}: error {}; faster or slower: right in {} of {} rows", set,
                                errors.text(), errors.right, errors.count)));
  }
  if (any_superlinear) {
    fmt::print(out, "*: measured faster than its devices times one device; not fitted\n");
  }
  print_machines(machines, out);
}

void print_predictions(const std::vector<AllReducePrediction>& predictions, std::FILE* out) {
  fmt::print(out, "{:<12}{:<24}{:>4}{:>12}{:>10}{:>9}{:>9}\n", "hardware", "algorithm", "gpus",
             "bytes", "predicted", "measured", "error");
  std::map<std::string, Errors> hardwares;
  Machines machines;
  for (const AllReducePrediction& row : predictions) {
    const std::string bytes = row.bytes <= 0     ? "-"
                              : row.bytes < 1e11 ? fmt::format("{:.0f}", row.bytes)
                                                 : fmt::format("{:.2e}", row.bytes);
    fmt::print(out, "{:<12}{:<24}{:>4}{:>12}{:>10}{:>9}{:>9}\n", cut(row.hardware, 11),
               cut(row.algorithm, 23), row.gpus, bytes, short_number(row.predicted),
               short_number(row.measured), percent(row.error()));
    machines[{row.hardware, row.interconnect}] = row.topology;
    hardwares[row.hardware].add(row.error());
  }
  for (const auto& [hardware, errors] : hardwares) {
    fmt::print(out, "{}: error {} in {} row{}\n", hardware, errors.text(), errors.count,
               errors.count == 1 ? "" : "s");
  }
  print_machines(machines, out);
}

nlohmann::ordered_json rows_json(const std::vector<ScalingPrediction>& predictions) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const ScalingPrediction& prediction : predictions) {
    const PublishedRow& row = prediction.row;
    rows.push_back({{"set", row.set},
                    {"hardware", row.hardware},
                    {"interconnect", row.interconnect},
                    {"model", row.model},
                    {"strategy", row.strategy_name},
                    {"gpus", row.gpus},
                    {"measured", row.value},
                    {"predicted", prediction.predicted},
                    {"error", prediction.error()},
                    {"unit", row.unit_name},
                    {"topology", prediction.topology},
                    {"superlinear", prediction.is_superlinear()}});
  }
  return rows;
}

nlohmann::ordered_json rows_json(const std::vector<AllReducePrediction>& predictions) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const AllReducePrediction& row : predictions) {
    rows.push_back({{"set", "allreduce"},
                    {"hardware", row.hardware},
                    {"interconnect", row.interconnect},
                    {"model", row.algorithm},
                    {"strategy", "all_reduce"},
                    {"gpus", row.gpus},
                    {"measured", row.measured},
                    {"predicted", row.predicted},
                    {"error", row.error()},
                    {"unit", row.unit},
                    {"bytes", row.bytes},
                    {"topology", row.topology}});
  }
  return rows;
}

}  // namespace lockstep::tools
