// Lab 05: the simplest all-reduce. README.md says what is to be done.
#pragma once

#include <span>

#include "rank.h"

namespace lab {

// In place: afterwards every rank's buffer holds the sum of all ranks' buffers, element by element.
// All buffers have the same size. Rank 0 does the work: it receives every other rank's buffer, adds
// it to its own, and sends the sum to each of them.
// Cost: rank 0 receives and sends (n-1) buffers; each other rank sends and receives one.
void naive_all_reduce(Rank& rank, std::span<double> buffer);

}  // namespace lab
