// What is trained, in the words of the lines that train and compare print first.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "tools/training/task.h"

namespace lockstep::tools {

// "1 epoch", "24 steps".
std::string count_text(std::size_t count, std::string_view noun);

// "24 steps of 64 rows"; where a batch is larger than the data, the rows there are, and what was
// asked for: "1 step of 1500 rows (batch 100000 asked)".
std::string steps_text(const TrainingTask& task);

// The same of a step alone: "batch 64", "batch 1500 (100000 asked)".
std::string batch_text(const TrainingTask& task);

}  // namespace lockstep::tools
