// A schedule as a page: each GPU's streams over time, and below them the memory that it holds.
#pragma once

#include <string>

#include "tutorials/labs/puzzles/rules.h"

namespace lab {

// One HTML page that needs no other file and no script: a picture whose pieces say what they are,
// and the same as a table. A schedule that breaks a rule is drawn up to there.
std::string draw_page(const std::string& title, const PuzzleSizes& sizes, const Played& played);

}  // namespace lab
