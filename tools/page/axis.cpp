#include "tools/page/axis.h"

#include <algorithm>
#include <cmath>

namespace lockstep::tools::page {
namespace {

// Less than that has no steps that are numbers, and more no end.
bool has_extent(double largest) {
  return largest > 1e-300 && largest < 1e300;
}

double round_step(double largest, int num_steps) {
  const double raw = largest / num_steps;
  const double power = std::pow(10.0, std::floor(std::log10(raw)));
  for (const double factor : {1.0, 2.0, 2.5, 5.0}) {
    if (raw <= factor * power * 1.0001) return factor * power;
  }
  return 10 * power;
}

}  // namespace

Axis axis_to(double largest, int num_steps) {
  if (!has_extent(largest)) largest = 1;
  const double step = round_step(largest, num_steps);
  Axis axis;
  const int num_ticks = static_cast<int>(std::ceil(largest / step - 1e-9));
  for (int i = 0; i <= num_ticks; ++i) axis.ticks.push_back(i * step);
  axis.end = axis.ticks.back();
  return axis;
}

Axis tight_axis_to(double largest, int num_steps) {
  Axis axis = axis_to(largest, num_steps);
  if (!has_extent(largest)) return axis;
  axis.end = largest;
  std::erase_if(axis.ticks, [&](double tick) { return tick > largest * 1.0001; });
  return axis;
}

const char* tick_anchor(double percent, std::string_view text) {
  constexpr double kHalfLetter = 1.1;  // percent of 320 pixels
  return percent + kHalfLetter * static_cast<double>(text.size()) > 100 ? "end" : "middle";
}

}  // namespace lockstep::tools::page
