// Lab 15: reduce-scatter, step, all-gather. README.md says what is to be done.
#pragma once

#include <span>

#include "rank.h"

namespace lab {

// Shard `index` of the world_size shards of a buffer. The first shards have one element more where
// the size does not divide; where there are fewer elements than ranks, the last ones are empty.
std::span<double> shard_of(std::span<double> buffer, int world_size, int index);

// n = world_size. Before: every rank has its own values. Afterwards: shard r of rank r's buffer
// holds the sum over all ranks; the rest of the buffer does not matter.
// Cost: one step; every rank sends shard j to rank j, for all other ranks j.
void reduce_scatter(Rank& rank, std::span<double> buffer);

// Before: shard r of rank r's buffer is finished. Afterwards: every rank has all finished shards.
// Cost: one step; every rank sends its shard to all others.
void all_gather(Rank& rank, std::span<double> buffer);

// In place: afterwards every rank's buffer holds the sum of all ranks' buffers.
void all_reduce(Rank& rank, std::span<double> buffer);

// weights -= learning_rate * the mean of all ranks' gradients, on every rank. Before, all ranks
// have the same weights. Each rank computes this for its own shard only.
// Cost: that of reduce_scatter and all_gather. The gradients may be overwritten.
void sharded_step(Rank& rank, std::span<double> weights, std::span<double> gradients,
                  double learning_rate);

}  // namespace lab
