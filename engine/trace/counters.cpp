#include "engine/trace/counters.h"

#include <algorithm>
#include <array>
#include <mutex>
#include <tuple>

namespace lockstep::trace {

namespace {

// Ranks share a shard only when there are more than kNumShards of them in one process.
constexpr std::size_t kNumShards = 64;

struct alignas(64) Shard {
  std::mutex mutex;
  std::vector<CollectiveCount> counts;  // a handful of operations: searched one by one
};

std::array<Shard, kNumShards>& shards() {
  static auto& instance = *new std::array<Shard, kNumShards>;  // outlives every thread
  return instance;
}

Shard& shard_of(int rank) {
  return shards()[static_cast<std::size_t>(rank) % kNumShards];
}

}  // namespace

void count_collective(int rank, std::string_view operation, std::size_t num_bytes) {
  Shard& shard = shard_of(rank);
  const std::lock_guard lock(shard.mutex);
  auto found = std::find_if(shard.counts.begin(), shard.counts.end(), [&](const auto& count) {
    return count.rank == rank && count.operation == operation;
  });
  if (found == shard.counts.end()) {
    shard.counts.push_back({rank, std::string(operation), 0, 0});
    found = shard.counts.end() - 1;
  }
  ++found->num_calls;
  found->num_bytes += num_bytes;
}

std::vector<CollectiveCount> collective_counts() {
  std::vector<CollectiveCount> all;
  for (Shard& shard : shards()) {
    const std::lock_guard lock(shard.mutex);
    all.insert(all.end(), shard.counts.begin(), shard.counts.end());
  }
  std::sort(all.begin(), all.end(), [](const CollectiveCount& a, const CollectiveCount& b) {
    return std::tie(a.rank, a.operation) < std::tie(b.rank, b.operation);
  });
  return all;
}

std::size_t collective_bytes_of(int rank) {
  std::size_t num_bytes = 0;
  for (const CollectiveCount& count : collective_counts()) {
    num_bytes += count.rank == rank ? count.num_bytes : 0;
  }
  return num_bytes;
}

void reset_collective_counts() {
  for (Shard& shard : shards()) {
    const std::lock_guard lock(shard.mutex);
    shard.counts.clear();
  }
}

UncountedScope::UncountedScope(std::vector<int> ranks) : ranks_(std::move(ranks)) {
  for (CollectiveCount& count : collective_counts()) {
    if (std::ranges::count(ranks_, count.rank) > 0) counts_.push_back(std::move(count));
  }
}

UncountedScope::~UncountedScope() {
  for (const int rank : ranks_) {
    Shard& shard = shard_of(rank);
    const std::lock_guard lock(shard.mutex);
    std::erase_if(shard.counts, [rank](const auto& count) { return count.rank == rank; });
    for (const CollectiveCount& count : counts_) {
      if (count.rank == rank) shard.counts.push_back(count);
    }
  }
}

}  // namespace lockstep::trace
