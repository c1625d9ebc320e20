#include "tools/page/run_charts.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <set>
#include <tuple>

#include "tools/page/html_text.h"

namespace lockstep::tools::page {
namespace {

using Figure = std::function<std::optional<double>(const FileRow&)>;

double largest_of(const RunFile& run, const Figure& value) {
  double largest = 0;
  for (const FileRow& row : run.rows) largest = std::max(largest, value(row).value_or(0));
  return largest;
}

double x_of(const RunFile& run, const FileRow& row) {
  return static_cast<double>(has_growing_batch(run) ? row.rows_per_device() : row.devices);
}

// A line for each way of training; of one that has several batches, for each number of devices.
std::vector<Series> series_of(const RunFile& run, const Figure& value) {
  const bool is_growing = has_growing_batch(run);
  std::vector<Series> all;
  for (const FileRow& row : run.rows) {
    const std::optional<double> y = value(row);
    if (!y) continue;
    std::string label = row.mode;
    if (is_growing && row.devices > 1) label += fmt::format(" x{}", row.devices);
    if (!row.what_if.empty()) label += fmt::format(" ({})", row.what_if);
    if (row.kind != "measured") label += ", " + row.kind;
    auto found = std::ranges::find(all, label, &Series::label);
    if (found == all.end()) {
      found = all.insert(all.end(), {label, color_of(row.mode), row.kind, {}});
    }
    found->points.push_back({x_of(run, row), *y});
  }
  for (Series& series : all) std::ranges::stable_sort(series.points, {}, &Point::x);
  return all;
}

// Where two lines of a kind would have one colour, all get colours of their own, as far as there
// are.
void tell_apart(std::vector<Series>& all) {
  constexpr std::array<const char*, 10> kColors = {"s-ddp", "s-dp", "s-1", "s-2", "s-3",
                                                   "s-4",   "s-5",  "s-6", "s-7", "s-8"};
  std::set<std::pair<std::string, std::string>> taken;
  for (const Series& series : all) taken.emplace(series.color, series.kind);
  if (taken.size() == all.size()) return;
  std::size_t next = 0;
  bool has_single = false;
  for (Series& series : all) {
    const bool is_single = series.color == "s-single" && series.label.starts_with("single");
    if (!is_single || has_single) series.color = kColors[next++ % kColors.size()];
    has_single = has_single || is_single;
  }
}

// The single device as a level that the others are seen against.
void draw_single_as_level(const RunFile& run, std::vector<Series>& all) {
  double most = 1;
  for (const FileRow& row : run.rows) most = std::max(most, x_of(run, row));
  for (Series& series : all) {
    if (series.color != "s-single" || series.points.size() != 1 || series.kind != "measured") {
      continue;
    }
    series.kind = "ideal";
    series.points.push_back({most, series.points[0].y});
  }
}

LineChart chart_of(const RunFile& run, const Figure& value, const std::string& y_label) {
  LineChart chart;
  chart.x_scale = XScale::log2;
  chart.x_label = has_growing_batch(run) ? "rows per device and step (count)" : "devices (count)";
  chart.y_label = y_label;
  chart.series = series_of(run, value);
  tell_apart(chart.series);
  return chart;
}

// What the hardware of the rows of a kind could give; once, where two kinds have the same.
void add_ideal(const RunFile& run, const std::string& kind, std::vector<Series>& all) {
  Series ideal{kind == "measured" ? "ideal" : "ideal, " + kind, "s-ideal", "ideal", {}};
  for (const FileRow& row : run.rows) {
    if (row.ideal_speedup && row.mode != "single" && row.kind == kind) {
      ideal.points.push_back({x_of(run, row), *row.ideal_speedup});
    }
  }
  const auto place = [](const Point& point) { return std::pair(point.x, point.y); };
  std::ranges::sort(ideal.points, {}, place);
  const auto same = std::ranges::unique(ideal.points, {}, &Point::x);
  ideal.points.erase(same.begin(), same.end());
  const bool is_drawn = std::ranges::any_of(all, [&](const Series& series) {
    return series.kind == "ideal" &&
           std::ranges::equal(series.points, ideal.points, {}, place, place);
  });
  if (!ideal.points.empty() && !is_drawn) all.push_back(std::move(ideal));
}

std::string against(const RunFile& run) {
  return has_growing_batch(run) ? "against the batch per device" : "against devices";
}

}  // namespace

std::string color_of(const std::string& mode) {
  if (mode == "single" || mode == "dp" || mode == "ddp") return "s-" + mode;
  constexpr std::array<std::string_view, 8> kModes = {
      "hierarchical",     "zero1",           "zero3",      "pipeline",
      "device_allreduce", "nccl_replicated", "cpu_reduce", "cpu_parameter_server"};
  const auto known = std::ranges::find(kModes, mode);
  if (known != kModes.end()) return fmt::format("s-{}", 1 + (known - kModes.begin()));
  return fmt::format("s-{}", 6 + std::hash<std::string>()(mode) % 3);
}

bool has_growing_batch(const RunFile& run) {
  std::map<std::tuple<std::string_view, std::size_t, std::string_view>, std::size_t> batches;
  return std::ranges::any_of(run.rows, [&](const FileRow& row) {
    return batches.try_emplace({row.mode, row.devices, row.what_if}, row.batch).first->second !=
           row.batch;
  });
}

std::string bar_label(const RunFile& run, const FileRow& row) {
  std::string label = name_of(row);
  if (has_growing_batch(run)) label += fmt::format(", {} rows", row.rows_per_device());
  if (row.kind != "measured") label += ", " + row.kind;
  if (row.contended == true) label += "*";
  return label;
}

std::string figure(const std::string& name, const std::string& title, const std::string& subtitle,
                   const std::string& picture, const std::string& notes) {
  return fmt::format("<figure class=\"{}\"><figcaption><b>{}</b> {}</figcaption>\n{}{}</figure>\n",
                     name, escape(title), escape(subtitle), picture, notes);
}

std::string epoch_figure(const RunFile& run) {
  const Figure seconds = [](const FileRow& row) { return row.median_epoch_seconds; };
  const Unit unit = seconds_unit(largest_of(run, seconds));
  const Figure value = [&](const FileRow& row) -> std::optional<double> {
    if (!row.median_epoch_seconds) return std::nullopt;
    return *row.median_epoch_seconds / unit.size;
  };
  LineChart chart = chart_of(run, value, fmt::format("median epoch time ({})", unit.name));
  chart.title = "Epoch time " + against(run);
  draw_single_as_level(run, chart.series);
  return figure("epoch", "Epoch time", against(run), line_chart_svg(chart), line_chart_key(chart));
}

std::string speedup_figure(const RunFile& run) {
  const Figure speedup = [](const FileRow& row) { return row.speedup; };
  LineChart chart = chart_of(run, speedup, "speed-up (times the baseline)");
  chart.title = "Speed-up " + against(run);
  std::erase_if(chart.series, [](const Series& series) { return series.color == "s-single"; });
  if (chart.series.empty()) return {};
  for (const char* kind : {"measured", "acted", "predicted"}) add_ideal(run, kind, chart.series);
  return figure("speedup", "Speed-up", against(run), line_chart_svg(chart), line_chart_key(chart));
}

std::string accuracy_figure(const RunFile& run) {
  const Figure percent = [](const FileRow& row) -> std::optional<double> {
    if (!row.test_accuracy) return std::nullopt;
    return 100 * *row.test_accuracy;
  };
  LineChart chart = chart_of(run, percent, "test accuracy (%)");
  chart.title = "Test accuracy at the end " + against(run);
  if (chart.series.empty()) return {};
  draw_single_as_level(run, chart.series);
  return figure("accuracy", "Test accuracy", "at the end, " + against(run), line_chart_svg(chart),
                line_chart_key(chart));
}

std::string accuracy_curve(const RunFile& run) {
  LineChart chart{"Test accuracy, epoch by epoch", "epoch (number)", "test accuracy (%)"};
  for (const FileRow& row : run.rows) {
    if (row.epoch_accuracy.size() < 2) continue;
    Series series{bar_label(run, row), color_of(row.mode), row.kind, {}};
    for (const double accuracy : row.epoch_accuracy) {
      series.points.push_back({static_cast<double>(series.points.size() + 1), 100 * accuracy});
    }
    if (series.points.size() > 40) chart.markers = Markers::none;
    chart.series.push_back(std::move(series));
  }
  if (chart.series.empty()) return {};
  tell_apart(chart.series);
  return figure("accuracy_curve", "Test accuracy", "epoch by epoch", line_chart_svg(chart),
                line_chart_key(chart));
}

std::string epochs_figure(const FileRow& row) {
  if (row.epoch_seconds.empty()) return {};
  const Unit unit = seconds_unit(*std::ranges::max_element(row.epoch_seconds));
  Series series{row.mode, color_of(row.mode), row.kind, {}};
  for (const double seconds : row.epoch_seconds) {
    series.points.push_back({static_cast<double>(series.points.size() + 1), seconds / unit.size});
  }
  LineChart chart{"Epoch time, epoch by epoch", "epoch (number)",
                  fmt::format("epoch time ({})", unit.name)};
  if (series.points.size() > 40) chart.markers = Markers::none;
  chart.series = {series};
  return figure("epoch", "Epoch time", "epoch by epoch", line_chart_svg(chart));
}

std::string loss_figure(const std::vector<Point>& losses) {
  LineChart chart{"Loss of the training steps", "training step (number)",
                  "cross-entropy, mean over the batch (nats)"};
  chart.markers = Markers::none;
  chart.series = {{"loss", "s-ddp", "measured", losses}};
  return figure("loss", "Loss", "while training", line_chart_svg(chart));
}

}  // namespace lockstep::tools::page
