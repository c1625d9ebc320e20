// The epoch-time table for people.
#pragma once

#include <string>
#include <vector>

#include "tools/report/run_file.h"

namespace lockstep::tools {

// A header line and a line per row; rows[0] is the single-device row.
std::string table_header();
std::string table_line(const RunRow& row, const RunRow& single);

// "8 virtual devices on 2 cores: this shows overhead, not speed-up" for the largest such row; empty
// where every device has a core of its own.
std::string sharing_note(const std::vector<RunRow>& rows);

}  // namespace lockstep::tools
