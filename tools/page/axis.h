// Round ticks of an axis.
#pragma once

#include <string_view>
#include <vector>

namespace lockstep::tools::page {

struct Axis {
  double end = 1;  // of the axis, which begins at 0; a tick, or a little above the last one
  std::vector<double> ticks;
};

// From 0 to `largest` or a little more, in steps of 1, 2, 2.5 or 5 times a power of ten; about
// `num_steps` of them.
Axis axis_to(double largest, int num_steps = 4);

// The same, but it ends at `largest` itself: for bars, whose longest one takes all the width.
Axis tight_axis_to(double largest, int num_steps = 4);

// The text-anchor of a tick's text at so many percent of the width: "end" where half of it would
// not fit right of the tick on a phone, else "middle".
const char* tick_anchor(double percent, std::string_view text);

}  // namespace lockstep::tools::page
