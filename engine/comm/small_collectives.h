// Collectives of a few numbers.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/comm/communicator.h"
#include "engine/core/device.h"

namespace lockstep::comm {

// All-gathers a few integers: all ranks' numbers behind each other, by rank.
// REQUIRES: every rank calls it, with equally many.
std::vector<std::int64_t> gather_numbers(const std::vector<std::int64_t>& mine,
                                         Communicator& communicator);

// Reduces one number of every rank. It travels on the ranks' devices, which every communicator
// reaches.
// REQUIRES: every rank calls it, with the same op.
double reduce_number(double mine, ReduceOp op, Communicator& communicator, Device device);

}  // namespace lockstep::comm
