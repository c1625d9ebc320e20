// What to change so that a run's devices are worth more, largest gain first, in sentences.
#pragma once

#include <string>

#include "tools/explain/doubling.h"

namespace lockstep::tools {

// all: the rows of found, and those of other batches, buckets or links. Of found.rows[index]: what
// each part of its step costs that better use of the devices would save, and which row of the file
// is faster already.
std::string remedies_text(const RunRows& found, const RunRows& all, std::size_t index,
                          const SharedHardware& hardware);

}  // namespace lockstep::tools
