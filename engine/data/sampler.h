// Decides which rows each rank trains on, and in which order: the two ways of --sampler.
//
//   torch   DistributedSampler deals the epoch's rows out like cards, and pads (or drops) until
//           every rank has the same number. Each rank then cuts its own batches. Padded rows count
//           twice.
//   exact   the epoch's rows are cut into global batches, and each global batch into one shard per
//           rank by the scatter plan. No row is used twice or left out, so n ranks can compute
//           what one device would; shards may differ in size, and a rank may get no rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep::data {

enum class Shuffle { off, on };
enum class DropLast { off, on };

// The rows that one rank uses in one step.
struct BatchShard {
  std::vector<std::size_t> rows;    // indices into the data set
  std::size_t num_global_rows = 0;  // rows of this step's batch over all ranks
  std::size_t global_offset = 0;    // place of rows[0] in that batch

  bool operator==(const BatchShard&) const = default;
};

// The rows of a text are windows of `length` tokens; a row's number is that of its first token.
struct TextWindows {
  std::size_t length = 0;      // 0: the data set is not a text
  std::size_t num_starts = 0;  // a window can begin at tokens 0 ... num_starts - 1
};

// 0 ... num_samples - 1, shuffled by seed + epoch: (seed 0, epoch 1) equals (seed 1, epoch 0).
// For a text, the order has num_samples windows, each starting at a token drawn by (seed + epoch,
// place in the order); unshuffled they follow each other.
std::vector<std::size_t> epoch_order(std::size_t num_samples, std::uint64_t seed,
                                     std::uint64_t epoch, Shuffle shuffle,
                                     const TextWindows& windows = {});

// The rows of one rank, as in PyTorch's DistributedSampler: all ranks get ceil(L / R) of the L
// rows; with DropLast::on and L % R != 0, ceil((L - R) / R). The order is padded by wrapping around
// to its start, or cut; rank r takes places r, r + R, r + 2R, ... Ten rows on four ranks,
// unshuffled: {0,4,8} {1,5,9} {2,6,0} {3,7,1}; with DropLast::on {0,4} {1,5} {2,6} {3,7}.
// The shuffled order is Lockstep's own (core/rng.h), not PyTorch's.
// Throws Error{Usage} if rank is not in 0 ... world_size - 1.
// Source: torch/utils/data/distributed.py.
std::vector<std::size_t> distributed_sampler(std::size_t num_samples, std::size_t world_size,
                                             std::size_t rank, std::uint64_t seed,
                                             std::uint64_t epoch, Shuffle shuffle,
                                             DropLast drop_last);

struct SamplerOptions {
  std::size_t num_samples = 0;
  std::size_t batch_size = 1;  // rows per step over all ranks; an epoch's last batch may have fewer
  std::size_t world_size = 1;
  std::size_t rank = 0;
  std::uint64_t seed = 0;
  Shuffle shuffle = Shuffle::on;
  TextWindows windows = {};  // a text's
};

// The shards of one rank, one for each step of the epoch: ceil(num_samples / batch_size) steps, the
// same number on every rank.
// Throws Error{Usage} for a batch size or world size of 0 and a rank outside the world.
std::vector<BatchShard> exact_batches(const SamplerOptions& options, std::uint64_t epoch);

// The same for --bitwise: a rank's shard is its micro-shards (plan/micro_shards.h), which are cut
// by 8 for any world size. Also throws Error{Usage} unless world_size is 1, 2, 4 or 8.
std::vector<BatchShard> micro_shard_batches(const SamplerOptions& options, std::uint64_t epoch);

// The same for --sampler torch: distributed_sampler's rows (without dropping) in batches of
// batch_size / world_size rows, the last one smaller. global_offset counts the ranks' batches as if
// they were concatenated.
// Also throws Error{Usage} if world_size does not divide batch_size.
std::vector<BatchShard> torch_batches(const SamplerOptions& options, std::uint64_t epoch);

}  // namespace lockstep::data
