// The median step of an acted run as rows of characters over a time axis, for the terminal.
#pragma once

#include <cstdint>
#include <string>

#include "tutorials/acted.h"

namespace lockstep::tutorial {

// The span of a device's all-reduce, from its start to its end there.
bool is_all_reduce(const trace::Span& span);

// The length of the median step, which is the width of a picture that shows it all.
std::int64_t length_ns(const ActedSteps& acted);

// One device's kernels: f forward, b backward, + a gradient added to another, u the optimizer's
// update. width_ns: the time that the whole row shows.
std::string draw_kernels(const ActedSteps& acted, int device, std::int64_t width_ns);

// Its all-reduces, by the number of the bucket: 0, 1, ... in the order in which they began. Beyond
// 9 it is the number's last digit.
std::string draw_all_reduces(const ActedSteps& acted, int device, std::int64_t width_ns);

// Microseconds above the rows, which begin `indent` columns to the right; the last label is the
// end.
void print_axis(std::int64_t width_ns, std::size_t indent);

}  // namespace lockstep::tutorial
