// Explains a run file in sentences: what limits the run, which row is the fastest, and what a
// --what-if changed. Every figure is in the file: other machines are for `lockstep predict`.
#pragma once

#include <string>
#include <vector>

#include "tools/record/run_reader.h"

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
const RunRow& judged_row(const RunFile& file);

// A part of the judged row's step, beside one device's.
struct PartOfStep {
  std::string_view name;  // "forward", "exposed communication"
  double one = 0;         // seconds of one device
  double share = 0;       // what of them would be left at the ideal speed-up
  double row = 0;         // the judged row's
};

// All parts, in the order of the run file; `row - share` over all of them is the distance of the
// step from its ideal. Empty if no row has several devices, or one of the two no breakdown.
std::vector<PartOfStep> parts_of_judged_row(const RunFile& file);

// "8 GPUs train 3.5x as fast as one; ideal is 8.00x; the largest loss: smaller products.", about
// judged_row(). For a run without a baseline it gives a step's time. It calls simulated and
// predicted devices by those names.
std::string headline(const RunFile& file);

// Says how far judged_row() is from its ideal, and which parts of its step make up the largest part
// of that distance: "ddp x2 is 1.24x as fast as one device, where 2.00x would be ideal. A step
// takes 2.78 ms instead of 1.88 ms. Of the difference, 308 us are ...". Empty if no row has several
// devices and a breakdown. Devices that share cores, other processes, and a row that is faster than
// its hardware explains are named instead.
std::string limit_sentence(const RunFile& file);

}  // namespace lockstep::tools
