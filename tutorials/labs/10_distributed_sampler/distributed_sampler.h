// Lab 10: which rows each rank trains on. README.md says what is to be done.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lab {

enum class Shuffle { no, yes };
enum class DropLast { no, yes };

struct Epoch {
  std::size_t num_samples = 0;  // at least 1
  std::size_t world_size = 1;
  std::uint64_t seed = 0;
  std::uint64_t epoch = 0;
  Shuffle shuffle = Shuffle::yes;
  DropLast drop_last = DropLast::no;
};

// The order of all rows in one epoch, the same on all ranks: 0, 1, 2, ..., or with Shuffle::yes
// lockstep::random_permutation(num_samples, seed + epoch).
std::vector<std::size_t> epoch_order(const Epoch& epoch);

// One rank's places of the order: rank, rank + world_size, rank + 2 world_size, ...
// Length: the same on all ranks: num_samples / world_size, rounded up, or with DropLast::yes down.
// If the order ends too early it begins again, so that some rows are used twice.
std::vector<std::size_t> rows_of_rank(const std::vector<std::size_t>& order, const Epoch& epoch,
                                      std::size_t rank);

// The rows of one rank in one epoch, as PyTorch's DistributedSampler.
std::vector<std::size_t> distributed_sampler(const Epoch& epoch, std::size_t rank);

}  // namespace lab
