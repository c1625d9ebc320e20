// Says what limits a run: what keeps its fastest row with several devices from the ideal.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "tools/report/run_reader.h"

namespace lockstep::tools {

// Rows of one file that are judged together.
using FileRows = std::vector<const FileRow*>;

// The row that rows[index] is compared with: the last single-device row at or before it, or rows[0]
// if there is none.
const FileRow& baseline_of(const FileRows& rows, std::size_t index);

// Rows trained per second, against the baseline's.
double speedup(const FileRow& row, const FileRow& baseline);

// The index of the row that a run is judged by: the fastest row with several devices and a
// breakdown. Rows whose devices share hardware count only if there are no others. 0 if there is no
// such row. num_cores: of the machine that was measured.
std::size_t row_to_explain(const FileRows& rows, std::size_t num_cores);

// The largest part of a step, computation or another one: "exposed communication".
struct StepPart {
  double seconds = 0;
  const char* name = nullptr;
};
StepPart largest_part(const trace::StepBreakdown& step);

// Names what keeps row_to_explain() from its ideal: "exposed communication". Empty if there is no
// such row.
std::string limit_name(const FileRows& rows, std::size_t num_cores);

// Says about that row which parts of its step are the largest, which of them keeps it from the
// ideal, and what would help: "ddp x2: 62 % of the step is computation, 31 % exposed communication:
// limited by exposed communication; ...". Empty if there is no such row. If a row is faster than
// its hardware explains, the sentence says so.
std::string limit_sentence(const FileRows& rows, std::size_t num_cores);

}  // namespace lockstep::tools
