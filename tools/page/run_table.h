// Rows of a run file as an HTML table.
#pragma once

#include <string>

#include "tools/report/run_reader.h"

namespace lockstep::tools::page {

// In an element that scrolls by itself where the table is wider than the page.
std::string run_table(const RunFile& run);

}  // namespace lockstep::tools::page
