// The loss of every step, out of the file of --log.
#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

#include "tools/page/line_chart.h"

namespace lockstep::tools::page {

// x: step, y: loss; at most 240 points, each the mean of as many steps.
// Throws Error{Io} that names file and line: no such file, no line, a line that is no step.
std::vector<Point> read_losses(const std::filesystem::path& path, std::string_view operation);

}  // namespace lockstep::tools::page
