#include "tools/page/line_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "tools/page/axis.h"
#include "tools/page/html_text.h"

namespace lockstep::tools::page {
namespace {

// In the units of the picture; the labels of the lines stand right of the plot.
constexpr double kWidth = 360, kHeight = 236;
constexpr double kLeft = 42, kTop = 26, kBottom = 194;
constexpr double kLineOfText = 13, kWidthOfLetter = 7.2;
constexpr std::size_t kLongestLabel = 20;
constexpr std::size_t kMostLabels = 5;
constexpr std::size_t kMostNumberedX = 8;

bool has_key(const LineChart& chart) {
  return chart.series.size() > kMostLabels ||
         std::ranges::any_of(chart.series, [](const Series& series) {
           return num_letters(series.label) > kLongestLabel;
         });
}

class Plot {
 public:
  explicit Plot(const LineChart& chart) : chart_(chart) {
    double largest = 0;
    std::size_t longest = 6;
    for (const Series& series : chart.series) {
      longest = std::max(longest, num_letters(shortened(series.label, kLongestLabel)));
      for (const Point& point : series.points) {
        largest = std::max(largest, point.y);
        all_x_.insert(point.x);
      }
    }
    y_axis_ = axis_to(largest);
    right_ = kWidth - 14 - (has_key(chart) ? 0 : kWidthOfLetter * static_cast<double>(longest));
    if (all_x_.empty()) all_x_ = {0, 1};
  }

  double x(double value) const {
    const double first = place(*all_x_.begin()), last = place(*all_x_.rbegin());
    // A single value stands in the middle.
    const double share = last > first ? (place(value) - first) / (last - first) : 0.5;
    const double margin = chart_.markers == Markers::shown ? 12 : 0;
    return kLeft + margin + share * (right_ - kLeft - 2 * margin);
  }
  double y(double value) const { return kBottom - value / y_axis_.end * (kBottom - kTop); }

  std::vector<double> x_ticks() const {
    if (all_x_.size() <= kMostNumberedX) return {all_x_.begin(), all_x_.end()};
    if (chart_.x_scale == XScale::log2) return powers();
    std::vector<double> ticks = tight_axis_to(*all_x_.rbegin()).ticks;
    std::erase_if(ticks, [&](double tick) { return tick < *all_x_.begin(); });
    return ticks;
  }
  const Axis& y_axis() const { return y_axis_; }
  double right() const { return right_; }

 private:
  double place(double value) const {
    return chart_.x_scale == XScale::log2 ? std::log2(std::max(value, 1e-9)) : value;
  }
  std::vector<double> powers() const {
    std::vector<double> ticks;
    for (double tick = 1; tick <= *all_x_.rbegin(); tick *= 2) {
      if (tick >= *all_x_.begin()) ticks.push_back(tick);
    }
    while (ticks.size() > kMostNumberedX) {
      for (std::size_t i = 1; i < ticks.size(); ++i) {
        ticks.erase(ticks.begin() + static_cast<std::ptrdiff_t>(i));
      }
    }
    return ticks;
  }

  const LineChart& chart_;
  std::set<double> all_x_;
  Axis y_axis_;
  double right_ = kWidth;
};

std::string axes(const LineChart& chart, const Plot& plot) {
  std::string svg;
  for (const double tick : plot.y_axis().ticks) {
    const double y = plot.y(tick);
    svg += fmt::format(R"(<line class="{}" x1="{}" x2="{:.1f}" y1="{:.1f}" y2="{:.1f}"/>)",
                       tick == 0 ? "base" : "grid", kLeft, plot.right(), y, y);
    svg += fmt::format(R"(<text class="tick" x="{}" y="{:.1f}" text-anchor="end">{}</text>)",
                       kLeft - 6, y + 3.5, short_number(tick));
  }
  double free_from = 0;  // where the last number ends
  for (const double tick : plot.x_ticks()) {
    const double half = kWidthOfLetter / 2 * static_cast<double>(short_number(tick).size());
    if (plot.x(tick) - half < free_from) continue;
    free_from = plot.x(tick) + half;
    svg += fmt::format(R"(<text class="tick" x="{:.1f}" y="{}" text-anchor="middle">{}</text>)",
                       plot.x(tick), kBottom + 16, short_number(tick));
  }
  svg += fmt::format(R"(<text class="axis x" x="{}" y="{}" text-anchor="middle">{}</text>)",
                     (kLeft + plot.right()) / 2, kHeight - 8, escape(chart.x_label));
  return svg + fmt::format(R"(<text class="axis y" x="2" y="12">{}</text>)", escape(chart.y_label));
}

std::string marker(const Series& series, double x, double y) {
  if (series.kind == "ideal") return {};
  if (series.kind == "predicted") {
    return fmt::format(R"(<path class="marker" d="M{:.1f} {:.1f}l4.5 4.5-4.5 4.5-4.5-4.5z"/>)", x,
                       y - 4.5);
  }
  return fmt::format(R"(<circle class="marker" cx="{:.1f}" cy="{:.1f}" r="3.5"/>)", x, y);
}

std::string line(const Series& series, const Plot& plot, Markers markers) {
  std::string path, marks;
  for (const Point& point : series.points) {
    const double x = plot.x(point.x), y = plot.y(point.y);
    path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : "L", x, y);
    if (markers == Markers::shown) marks += marker(series, x, y);
  }
  return fmt::format(R"(<g class="{} {}"><path class="line" d="{}"/>{}</g>)", series.kind,
                     series.color, path, marks);
}

// Labels at the ends of the lines, moved apart where they would cover each other.
std::string labels(const LineChart& chart, const Plot& plot) {
  struct Label {
    double y;
    const Series* series;
  };
  std::vector<Label> all;
  for (const Series& series : chart.series) {
    if (!series.points.empty()) all.push_back({plot.y(series.points.back().y), &series});
  }
  std::ranges::stable_sort(all, {}, &Label::y);
  for (std::size_t i = 1; i < all.size(); ++i) {
    all[i].y = std::max(all[i].y, all[i - 1].y + kLineOfText);
  }
  double limit = kBottom;
  for (auto label = all.rbegin(); label != all.rend(); ++label) {
    label->y = std::min(label->y, limit);
    limit = label->y - kLineOfText;
  }
  std::string svg;
  for (const Label& label : all) {
    const double line_end = plot.x(label.series->points.back().x);
    const double place = std::max(line_end, plot.right() - 14) + 9;
    svg += fmt::format(R"(<text class="label {} {}" x="{:.1f}" y="{:.1f}">{}</text>)",
                       label.series->kind, label.series->color, place, label.y + 4,
                       escape(shortened(label.series->label, kLongestLabel)));
  }
  return svg;
}

}  // namespace

std::string line_chart_svg(const LineChart& chart) {
  const Plot plot(chart);
  std::string svg =
      fmt::format(R"(<svg class="chart" viewBox="0 0 {} {}" role="img"><title>{}</title>)", kWidth,
                  kHeight, escape(chart.title));
  svg += axes(chart, plot);
  for (const Series& series : chart.series) {
    if (!series.points.empty()) svg += line(series, plot, chart.markers);
  }
  return svg + (has_key(chart) ? "" : labels(chart, plot)) + "</svg>\n";
}

std::string line_chart_key(const LineChart& chart) {
  if (!has_key(chart)) return {};
  std::string html = "<ul class=\"legend\">";
  for (const Series& series : chart.series) {
    html += fmt::format(R"(<li><svg width="30" height="12" aria-hidden="true"><g class="{} {}">)"
                        R"(<path class="line" d="M1 6H29"/>{}</g></svg>{}</li>)",
                        series.kind, series.color, marker(series, 15, 6), escape(series.label));
  }
  return html + "</ul>\n";
}

}  // namespace lockstep::tools::page
