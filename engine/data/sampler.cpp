#include "engine/data/sampler.h"

#include <algorithm>
#include <numeric>

#include "engine/core/error.h"
#include "engine/core/rng.h"
#include "engine/plan/micro_shards.h"
#include "engine/plan/scatter.h"
#include "engine/trace/observer.h"

namespace lockstep::data {
namespace {

constexpr std::string_view kOperation = "sampler";

void check_rank(std::size_t rank, std::size_t world_size) {
  require(world_size >= 1, ErrorCode::Usage, kOperation, "expected at least 1 rank, found 0");
  require(rank < world_size, ErrorCode::Usage, kOperation, "rank {} is outside [0, {}]", rank,
          world_size - 1);
}

void check_options(const SamplerOptions& options) {
  check_rank(options.rank, options.world_size);
  require(options.batch_size >= 1, ErrorCode::Usage, kOperation,
          "expected a batch of at least 1 row, found 0");
}

void tell(std::string_view kind, const SamplerOptions& options, std::uint64_t epoch) {
  trace::fact("sampler", {{"kind", kind},
                          {"samples", options.num_samples},
                          {"batch", options.batch_size},
                          {"of_world", options.world_size},
                          {"of_rank", options.rank},
                          {"seed", options.seed},
                          {"epoch", epoch},
                          {"shuffled", options.shuffle == Shuffle::on}});
}

// Cuts the epoch's rows into global batches; part_of(rows in a batch) gives this rank's part, which
// is empty if it lies after the last row.
template <typename PartOf>
std::vector<BatchShard> cut_batches(const SamplerOptions& options, std::uint64_t epoch,
                                    const PartOf& part_of) {
  check_options(options);
  const auto order =
      epoch_order(options.num_samples, options.seed, epoch, options.shuffle, options.windows);
  std::vector<BatchShard> shards;
  for (std::size_t begin = 0; begin < order.size(); begin += options.batch_size) {
    BatchShard& shard = shards.emplace_back();
    shard.num_global_rows = std::min(options.batch_size, order.size() - begin);
    const plan::ScatterPart part = part_of(shard.num_global_rows);
    shard.global_offset = part.offset;
    const auto first = order.begin() + static_cast<std::ptrdiff_t>(begin + part.offset);
    shard.rows.assign(first, first + static_cast<std::ptrdiff_t>(part.size));
  }
  return shards;
}

}  // namespace

std::vector<std::size_t> epoch_order(std::size_t num_samples, std::uint64_t seed,
                                     std::uint64_t epoch, Shuffle shuffle,
                                     const TextWindows& windows) {
  const bool is_text = windows.length > 0;
  if (shuffle == Shuffle::on && !is_text) return random_permutation(num_samples, seed + epoch);
  std::vector<std::size_t> order(num_samples);
  std::iota(order.begin(), order.end(), std::size_t{0});
  if (!is_text) return order;
  for (std::size_t& row : order) {
    row = shuffle == Shuffle::on ? Rng(seed + epoch, row).below(windows.num_starts)
                                 : row * windows.length;
  }
  return order;
}

std::vector<std::size_t> distributed_sampler(std::size_t num_samples, std::size_t world_size,
                                             std::size_t rank, std::uint64_t seed,
                                             std::uint64_t epoch, Shuffle shuffle,
                                             DropLast drop_last) {
  check_rank(rank, world_size);
  tell("distributed", {num_samples, world_size, world_size, rank, seed, shuffle}, epoch);
  const std::vector<std::size_t> order = epoch_order(num_samples, seed, epoch, shuffle);
  // If R does not divide L, ceil((L - R) / R) = floor(L / R).
  const std::size_t floor = num_samples / world_size;
  const std::size_t ceiling = floor + (num_samples % world_size != 0 ? 1 : 0);
  const std::size_t num_per_rank = drop_last == DropLast::on ? floor : ceiling;
  std::vector<std::size_t> rows(num_per_rank);
  for (std::size_t i = 0; i < num_per_rank; ++i) {
    rows[i] = order[(rank + i * world_size) % num_samples];
  }
  return rows;
}

std::vector<BatchShard> exact_batches(const SamplerOptions& options, std::uint64_t epoch) {
  tell("exact", options, epoch);
  return cut_batches(options, epoch, [&options](std::size_t num_rows) {
    const plan::ScatterPlan plan = plan::scatter_plan(num_rows, options.world_size);
    return options.rank < plan.parts.size() ? plan.parts[options.rank]
                                            : plan::ScatterPart{options.rank, num_rows, 0};
  });
}

std::vector<BatchShard> micro_shard_batches(const SamplerOptions& options, std::uint64_t epoch) {
  tell("micro-shards", options, epoch);
  return cut_batches(options, epoch, [&options](std::size_t num_rows) {
    return plan::micro_shard_plan(num_rows, options.world_size).rows_of_device(options.rank);
  });
}

std::vector<BatchShard> torch_batches(const SamplerOptions& options, std::uint64_t epoch) {
  check_options(options);
  require(options.batch_size % options.world_size == 0, ErrorCode::Usage, kOperation,
          "a batch of {} rows cannot be shared evenly by {} ranks, as the torch sampler needs; use "
          "a multiple, or the exact sampler",
          options.batch_size, options.world_size);
  const std::size_t rank_batch = options.batch_size / options.world_size;
  const bool is_text = options.windows.length > 0;
  auto rows =
      distributed_sampler(options.num_samples, options.world_size, options.rank, options.seed,
                          epoch, is_text ? Shuffle::off : options.shuffle, DropLast::off);
  if (is_text) {
    const auto order =
        epoch_order(options.num_samples, options.seed, epoch, options.shuffle, options.windows);
    for (std::size_t& row : rows) row = order[row];
  }
  std::vector<BatchShard> shards;
  for (std::size_t begin = 0; begin < rows.size(); begin += rank_batch) {
    const std::size_t count = std::min(rank_batch, rows.size() - begin);
    const auto first = rows.begin() + static_cast<std::ptrdiff_t>(begin);
    shards.push_back({{first, first + static_cast<std::ptrdiff_t>(count)},
                      count * options.world_size,
                      count * options.rank});
  }
  return shards;
}

}  // namespace lockstep::data
