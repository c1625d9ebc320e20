// The rows of a run file that are judged together, and which of them is fastest.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "tools/record/run_reader.h"

namespace lockstep::tools {

using Rows = std::vector<const RunRow*>;

enum class Changes { with, without };

// The rows of one kind, with or without those that a --what-if changed.
Rows rows_of_kind(const RunFile& file, std::string_view kind, Changes changes);

// Says which of the rows is fastest, and which others are as fast within the noise.
std::string fastest_text(const Rows& all);

// Lists the rows of `all` that differ from `row` only by a --what-if; empty if there are none.
std::string changes_text(const Rows& all, const RunRow& row);

}  // namespace lockstep::tools
