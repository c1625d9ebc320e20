// A run file in one sentence.
#pragma once

#include <string>

#include "tools/report/run_reader.h"

namespace lockstep::tools {

// "8 GPUs train 3.5x as fast as one; 44 % efficient; limited by work that does not shrink with more
// devices." about the row that explain() speaks of; of a run without a row to compare with, the
// time of a step and its largest part. Simulated and predicted devices are called so.
std::string headline(const RunFile& file);

}  // namespace lockstep::tools
