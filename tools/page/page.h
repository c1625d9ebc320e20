// The report: one HTML file that needs nothing else, neither network nor script.
#pragma once

#include <string>
#include <vector>

#include "tools/page/page_run.h"

namespace lockstep::tools::page {

// Of one run, or of several side by side; of many each is folded until it is opened.
// REQUIRES: runs have names (name_runs), at least one.
std::string make_page(const std::vector<PageRun>& runs);

}  // namespace lockstep::tools::page
