// From which batch size devices pay, and what rows that a --what-if changed say, in sentences.
#pragma once

#include <string>

#include "tools/explain/run_rows.h"

namespace lockstep::tools {

// By the formulas of step_cost.h. all: rows of row's kind, those of other batches among them. Says
// that the file cannot tell where its rows do not bear the formulas out.
std::string batch_text(const RunRows& all, const FileRow& row, const FileRow& baseline);

// Each row of `all` that is `row` but for what a --what-if changed; empty where there is none.
std::string changes_text(const RunRows& all, const FileRow& row);

}  // namespace lockstep::tools
