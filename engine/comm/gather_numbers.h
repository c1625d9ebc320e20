// What every rank knows, as numbers, known to all ranks.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/comm/communicator.h"

namespace lockstep::comm {

// All ranks' numbers behind each other, by rank.
// REQUIRES: every rank calls it, with equally many.
std::vector<std::int64_t> gather_numbers(const std::vector<std::int64_t>& mine,
                                         Communicator& communicator);

}  // namespace lockstep::comm
