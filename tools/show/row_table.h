// The text that `train` and `compare` print for people: the epoch-time table, 80 columns or --wide,
// and the lines before it.
#pragma once

#include <string>
#include <vector>

#include "tools/record/run_file.h"

namespace lockstep::tools {

enum class TableWidth { terminal, wide };

// A header line, and one line per row. A mark after a row's mode says that the row was disturbed
// (contention.h).
std::string table_header(TableWidth width);
std::string table_line(const RunRow& row, TableWidth width);

// Two lines that explain the columns and name the baseline.
std::string table_legend(const RunRow& baseline);

// "8 virtual devices on 1 GPU: this shows overhead, not speed-up" for the row with the most
// devices; empty on a CPU, and if every device has a GPU of its own.
std::string sharing_note(const std::vector<RunRow>& rows);

// One note for each kind of row that is more than 100 % efficient: by noise, or (marked "+") more.
std::vector<std::string> efficiency_notes(const std::vector<RunRow>& rows);

// Says how many times slower each simulated row ran; empty if no row was simulated.
std::string factor_note(const std::vector<RunRow>& rows);

}  // namespace lockstep::tools
