#include "tools/prediction/prediction_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

namespace lockstep::tools {
namespace {

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
    return fmt::format("mean {:.1f} %, max {:.1f} %", 100 * total / static_cast<double>(count),
                       100 * largest);
  }
};

std::string cut(const std::string& text, std::size_t width) {
  return text.size() <= width ? text : text.substr(0, width - 2) + "..";
}

// Three significant digits, so that tables of seconds and of images look alike.
std::string short_number(double value) {
  const double size = std::abs(value);
  const int decimals = size < 1 ? 4 : size < 10 ? 2 : size < 1000 ? 1 : 0;
  return fmt::format("{:.{}f}", value, decimals);
}

}  // namespace

void print_predictions(const std::vector<ScalingPrediction>& predictions, std::FILE* out) {
  fmt::print(out, "{:<4}{:<15}{:<13}{:<16}{:>4}{:>10}{:>9}{:>8}\n", "set", "hardware", "model",
             "strategy", "gpus", "predicted", "measured", "error");
  std::map<std::string, Errors> sets;
  bool any_superlinear = false;
  for (const ScalingPrediction& prediction : predictions) {
    const PublishedRow& row = prediction.row;
    fmt::print(out, "{:<4}{:<15}{:<13}{:<16}{:>4}{:>10}{:>9}{:>+6.1f} %{}\n", cut(row.set, 3),
               cut(row.hardware, 14), cut(row.model, 12), cut(row.strategy_name, 15), row.gpus,
               short_number(prediction.predicted), short_number(row.value),
               100 * prediction.error(), prediction.is_superlinear() ? "*" : "");
    any_superlinear = any_superlinear || prediction.is_superlinear();
    Errors& errors = sets[row.set];
    errors.add(prediction.error());
    errors.right += prediction.has_right_direction() ? 1 : 0;
  }
  for (const auto& [set, errors] : sets) {
    fmt::print(out, "set {}: error {}; faster or slower than 1: right in {} of {} rows\n", set,
               errors.text(), errors.right, errors.count);
  }
  if (any_superlinear) {
    fmt::print(out, "*: measured faster than its devices times one device; not fitted\n");
  }
}

void print_predictions(const std::vector<AllReducePrediction>& predictions, std::FILE* out) {
  fmt::print(out, "{:<12}{:<29}{:>4}{:>13}{:>10}{:>9}\n", "hardware", "algorithm", "gpus", "bytes",
             "predicted", "measured");
  std::map<std::string, Errors> hardwares;
  for (const AllReducePrediction& row : predictions) {
    fmt::print(out, "{:<12}{:<29}{:>4}{:>13}{:>10}{:>9}  {:+.1f} %\n", cut(row.hardware, 11),
               cut(row.algorithm, 28), row.gpus,
               row.bytes > 0 ? fmt::format("{:.0f}", row.bytes) : "-", short_number(row.predicted),
               short_number(row.measured), 100 * row.error());
    hardwares[row.hardware].add(row.error());
  }
  for (const auto& [hardware, errors] : hardwares) {
    fmt::print(out, "{}: error {} in {} rows\n", hardware, errors.text(), errors.count);
  }
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
                    {"bytes", row.bytes}});
  }
  return rows;
}

}  // namespace lockstep::tools
