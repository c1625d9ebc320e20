// A chart of lines over an axis of numbers, as inline SVG.
#pragma once

#include <string>
#include <vector>

namespace lockstep::tools::page {

struct Point {
  double x = 0;
  double y = 0;
};

struct Series {
  std::string label;              // stands at its last point
  std::string color;              // a class of the style sheet: "s-ddp"
  std::string kind = "measured";  // "acted", "predicted": other strokes and markers; "ideal": grey
  std::vector<Point> points;      // by x
};

enum class XScale { linear, log2 };
enum class Markers { shown, none };

struct LineChart {
  std::string title;             // for who cannot see it
  std::string x_label, y_label;  // each with its unit in brackets
  XScale x_scale = XScale::linear;
  Markers markers = Markers::shown;
  std::vector<Series> series = {};
};

// <svg class="chart">: as wide as its place. Empty charts have axes only.
std::string line_chart_svg(const LineChart& chart);

// A list of its lines, where they are too many or their names too long to stand at their ends; else
// empty. It belongs below the picture.
std::string line_chart_key(const LineChart& chart);

}  // namespace lockstep::tools::page
