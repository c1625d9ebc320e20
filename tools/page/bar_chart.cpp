#include "tools/page/bar_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "tools/page/axis.h"
#include "tools/page/html_text.h"

namespace lockstep::tools::page {
namespace {

// Pixels.
constexpr double kBarsTop = 22, kBarsLine = 17, kBar = 14, kThin = 4, kBarGap = 12, kBarsAxis = 34;
// Of the bars of a stack, by their number.
constexpr double kThickest = 10, kStack = 48;
// Of the width: a narrower part has no room for its name.
constexpr double kShareOfLetter = 0.026;

double length(const std::vector<BarPart>& parts) {
  return std::accumulate(parts.begin(), parts.end(), 0.0,
                         [](double sum, const BarPart& part) { return sum + part.value; });
}

// Of each bar of a stack, with the space below it.
double pitch(const Bar& bar) {
  return std::min(kThickest, kStack / static_cast<double>(bar.stacked.size()));
}

double bar_height(const Bar& bar) {
  if (!bar.stacked.empty()) {
    return kBarsLine + pitch(bar) * static_cast<double>(bar.stacked.size()) + kBarGap;
  }
  return kBarsLine + kBar + (bar.below.empty() ? 0 : kThin + 1) + kBarGap;
}

std::string part_svg(const BarPart& part, double begin, double end, double y, double thickness) {
  const double percent = 100 * (end - begin);
  return fmt::format(
      R"(<rect class="{}" x="{:.2f}%" y="{}" width="{:.2f}%" height="{}"><title>{}</title></rect>)",
      part.color, 100 * begin, y, percent, thickness, escape(part.name));
}

std::string parts_svg(const std::vector<BarPart>& parts, double axis_end, double y,
                      double thickness) {
  std::string svg;
  double begin = 0;
  for (const BarPart& part : parts) {
    const double end = begin + part.value / axis_end;
    if (part.value > 0) svg += part_svg(part, begin, end, y, thickness);
    const std::string word = part.name.substr(0, part.name.find_first_of(" ,"));
    if (thickness == kBar && end - begin > kShareOfLetter * static_cast<double>(word.size())) {
      svg += fmt::format(
          R"(<text class="inside on-{}" x="{:.2f}%" y="{}" text-anchor="middle">{}</text>)",
          part.color, 50 * (begin + end), y + 10.5, escape(word));
    }
    begin = end;
  }
  return svg;
}

std::string band_svg(const std::pair<double, double>& band, double axis_end, double y) {
  const double first = 100 * band.first / axis_end, last = 100 * band.second / axis_end;
  std::string svg = fmt::format(R"(<line class="band" x1="{:.2f}%" x2="{:.2f}%" y1="{}" y2="{}"/>)",
                                first, last, y + kBar - 1.5, y + kBar - 1.5);
  for (const double x : {first, last}) {
    svg += fmt::format(R"(<line class="band" x1="{:.2f}%" x2="{:.2f}%" y1="{}" y2="{}"/>)", x, x,
                       y + kBar - 4, y + kBar + 1);
  }
  return svg;
}

std::string bars_axis_svg(const Axis& axis, const std::string& label, double bottom) {
  std::string svg;
  for (const double tick : axis.ticks) {
    const double percent = 100 * tick / axis.end;
    const char* const anchor = tick == 0 ? "start" : tick_anchor(percent, short_number(tick));
    svg += fmt::format(R"(<line class="{}" x1="{:.2f}%" x2="{:.2f}%" y1="{}" y2="{}"/>)"
                       R"(<text class="tick" x="{:.2f}%" y="{}" text-anchor="{}">{}</text>)",
                       tick == 0 ? "base" : "grid", percent, percent, kBarsTop, bottom, percent,
                       bottom + 13, anchor, short_number(tick));
  }
  return svg + fmt::format(R"(<text class="axis x" x="50%" y="{}" text-anchor="middle">{}</text>)",
                           bottom + 29, escape(label));
}

}  // namespace

std::string bar_chart_svg(const BarChart& chart) {
  double end = chart.least_end;
  double bottom = kBarsTop;
  for (const Bar& bar : chart.bars) {
    end = std::max(end, length(bar.parts));
    end = std::max(end, length(bar.below));
    if (bar.band) end = std::max(end, bar.band->second);
    for (const BarPart& part : bar.stacked) end = std::max(end, part.value);
    bottom += bar_height(bar);
  }
  const Axis axis = tight_axis_to(end);
  std::string svg =
      fmt::format(R"(<svg class="bars" width="100%" height="{}" role="img"><title>{}</title>)",
                  bottom + kBarsAxis, escape(chart.title));
  svg += bars_axis_svg(axis, chart.x_label, bottom);
  svg += fmt::format(R"(<text class="axis y" x="0" y="12">{}</text>)", escape(chart.y_label));
  double y = kBarsTop;
  for (const Bar& bar : chart.bars) {
    svg += fmt::format(R"(<g class="{}"><text class="name" x="0" y="{}">{}</text>)"
                       R"(<text class="value" x="100%" y="{}" text-anchor="end">{}</text>)",
                       bar.kind, y + 11, escape(bar.label), y + 11, escape(bar.value));
    svg += parts_svg(bar.parts, axis.end, y + kBarsLine, kBar);
    if (bar.band) svg += band_svg(*bar.band, axis.end, y + kBarsLine);
    svg += parts_svg(bar.below, axis.end, y + kBarsLine + kBar + 1, kThin);
    for (std::size_t i = 0; i < bar.stacked.size(); ++i) {
      svg += part_svg(bar.stacked[i], 0, bar.stacked[i].value / axis.end,
                      y + kBarsLine + pitch(bar) * static_cast<double>(i), pitch(bar) - 1);
    }
    svg += "</g>";
    y += bar_height(bar);
  }
  return svg + "</svg>\n";
}

}  // namespace lockstep::tools::page
