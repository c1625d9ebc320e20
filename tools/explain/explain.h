// What a run file says about its run, in sentences: what limits it, what twice the devices would
// give, from which batch size several devices pay, and what to change. Every figure is the file's,
// or follows from the file's by a formula of step_cost.h, which is printed with its figures. What
// the file cannot tell is said to be missing.
#pragma once

#include <string>
#include <vector>

#include "tools/report/run_reader.h"

namespace lockstep::tools {

struct Answer {
  std::string title;  // "What limits it"
  std::string text;   // sentences
};

// Of the measured rows; of a file without such, of the acted ones, then of the predicted ones: of
// those that no --what-if changed, whose rows a last answer lists.
std::vector<Answer> explain(const RunFile& file);

// The row that the sentences are about: the fastest with several devices (report/bound.h), else the
// file's first. It lives as long as the file.
const FileRow& judged_row(const RunFile& file);

// "8 GPUs train 3.5x as fast as one; 44 % efficient; limited by work that does not shrink with more
// devices." about the row that explain() speaks of; of a run without a row to compare with, the
// time of a step and its largest part. Simulated and predicted devices are called so.
std::string headline(const RunFile& file);

}  // namespace lockstep::tools
