// Lab 06: the ring all-reduce, by messages between neighbours. README.md says what is to be done.
#pragma once

#include <cstddef>
#include <span>

#include "rank.h"

namespace lab {

// Part `index`, counted around the ring, of the world_size parts of a buffer: -1 is the last part,
// world_size is part 0. The first parts have one element more where the size does not divide.
std::span<double> part_of(std::span<double> buffer, int world_size, int index);

// Every rank sends to rank + 1 and receives from rank - 1, around the ring. n = world_size.
// Before: every rank has its own values. Afterwards: part r of rank r's buffer holds the sum over
// all ranks; the rest of the buffer does not matter.
// Cost: n - 1 steps; in each of them every rank sends one part.
void reduce_scatter(Rank& rank, std::span<double> buffer);

// Before: part r of rank r's buffer is finished. Afterwards: every rank has all finished parts.
// Cost: n - 1 steps; in each of them every rank sends one part.
void all_gather(Rank& rank, std::span<double> buffer);

// In place: afterwards every rank's buffer holds the sum of all ranks' buffers.
void ring_all_reduce(Rank& rank, std::span<double> buffer);

}  // namespace lab
