// The answer to "4 or 8 GPUs?" in one sentence.
#pragma once

#include <span>
#include <string>

#include "tools/prediction/predicted_rows.h"

namespace lockstep::tools {

// "4 GPUs: 3.8x (band 3.6x to 3.9x), 8 GPUs: ... the samples per second of one GPU, with 64 samples
// a step on each (weak scaling); limited by waiting for the slowest of 8 GPUs (...)".
// rows: the first one of a single device, then a strategy's, with their speedup_band. The limit is
// what takes the largest part of the time that the step on most devices is longer by.
std::string speedup_sentence(std::span<const PredictedRow> rows);

}  // namespace lockstep::tools
