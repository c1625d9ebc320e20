// Explains a run file in sentences: what limits the run, which row is the fastest, and what a
// --what-if changed. Every figure is in the file: other machines are for `lockstep predict`.
#pragma once

#include <string>
#include <vector>

#include "tools/report/run_reader.h"

namespace lockstep::tools {

struct Answer {
  std::string title;  // "What limits it"
  std::string text;   // sentences
};

// Explains the measured rows; in a file without any, the acted rows, else the predicted ones. Rows
// changed by a --what-if are left out: the last answer lists them.
std::vector<Answer> explain(const RunFile& file);

// The row that the sentences are about: the fastest with several devices and a breakdown, else the
// file's first. Rows whose devices share hardware count only if there are no others. It lives as
// long as the file.
const FileRow& judged_row(const RunFile& file);

// "8 GPUs train 3.5x as fast as one; 44 % efficient; limited by work that does not shrink with more
// devices.", about judged_row(). For a run without a baseline it gives a step's time and its
// largest part. It calls simulated and predicted devices by those names.
std::string headline(const RunFile& file);

// Says about judged_row() which parts of its step are the largest, which of them keeps it from the
// ideal, and what would help: "ddp x2: 62 % of the step is computation, 31 % exposed communication:
// limited by exposed communication; ...". Empty if no row has several devices and a breakdown. If a
// row is faster than its hardware explains, the sentence says so.
std::string limit_sentence(const RunFile& file);

}  // namespace lockstep::tools
