// The text that `train` and `compare` print for people: the epoch-time table, 80 columns or --wide,
// and the lines before it.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "tools/record/run_file.h"
#include "tools/run/task.h"

namespace lockstep::tools {

// "0 B", "75.0 KiB", "4.3 MiB".
std::string format_bytes(std::size_t num_bytes);

// "1.98x", "15.7x", "128x", "0.072x".
std::string format_factor(double factor);

// No command prints a wider line.
inline constexpr std::size_t kTerminalColumns = 80;

enum class TableWidth { terminal, wide };

// A header line, and one line per row. A mark after a row's mode says that the row was disturbed
// (contention.h).
std::string table_header(TableWidth width);
std::string table_line(const RunRow& row, const RunRow& baseline, TableWidth width);

// Two lines that explain the columns and name the baseline.
std::string table_legend(const RunRow& baseline);

// "8 virtual devices on 1 GPU: this shows overhead, not speed-up" for the row with the most
// devices; empty on a CPU, and if every device has a GPU of its own.
std::string sharing_note(const std::vector<RunRow>& rows);

// One note for each kind of row that is more than 100 % efficient: by noise, or (marked "+") more.
std::vector<std::string> efficiency_notes(const std::vector<RunRow>& rows);

// Says how many times slower each acted row ran; empty if no row was acted out.
std::string factor_note(const std::vector<RunRow>& rows);

// Breaks the text at spaces, so that it fits between `margin` and `columns`. Each line but the
// first begins with the margin's spaces.
std::string wrap(std::string_view text, std::size_t columns = kTerminalColumns,
                 std::size_t margin = 0);

// "1 epoch", "24 steps".
std::string count_text(std::size_t count, std::string_view noun);

// "124,354,560".
std::string with_thousands(std::size_t number);

// "24 steps of 64 rows". If the batch is larger than the data, it gives the rows there are and the
// batch that was asked for: "1 step of 1500 rows (batch 100000 asked)".
std::string steps_text(const TrainingTask& task);

// The same for a step alone: "batch 64", "batch 1500 (100000 asked)".
std::string batch_text(const TrainingTask& task);

}  // namespace lockstep::tools
