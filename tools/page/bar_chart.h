// Horizontal bars, each of parts, as inline SVG whose widths are shares of its place: so its text
// is of one size on a phone and on a desk.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::tools::page {

struct BarPart {
  std::string color;  // a class of the style sheet: "c-forward"
  double value = 0;   // in the axis's unit
  std::string name;   // shown in the part where there is room, and when it is pointed at
};

struct Bar {
  std::string label;                // above the bar, at the left
  std::string value;                // above the bar, at the right
  std::string kind = "measured";    // "acted" and "predicted" look different
  std::vector<BarPart> parts = {};  // end to end
  std::vector<BarPart> below = {};  // a thin line of parts below them, from 0 too
  std::optional<std::pair<double, double>> band = {};  // a line over the bar, from where to where
  std::vector<BarPart> stacked = {};  // instead of parts: bars of their own, one below the other
};

struct BarChart {
  std::string title;
  std::string x_label;   // with its unit in brackets
  std::string y_label;   // what a bar is
  double least_end = 0;  // the axis ends here or, where a bar is longer, at its end
  std::vector<Bar> bars = {};
};

std::string bar_chart_svg(const BarChart& chart);

}  // namespace lockstep::tools::page
