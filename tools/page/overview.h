// Several runs side by side: the part of the page before its runs.
#pragma once

#include <string>
#include <vector>

#include "tools/page/page_run.h"

namespace lockstep::tools::page {

// A table with a link to each run, and figures of the row by which each is judged.
// REQUIRES: runs have names.
std::string overview(const std::vector<PageRun>& runs);

}  // namespace lockstep::tools::page
