#include "engine/trace/counters.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <mutex>
#include <tuple>

#include "engine/trace/span.h"

namespace lockstep::trace {

namespace {

// The counts of one rank, or of several with the same remainder. With a single lock for all, ranks
// that are threads would wait for each other.
struct alignas(64) Counts {
  std::mutex mutex;
  std::vector<CollectiveCount> all;  // so few operations that they are searched one by one
};

std::array<Counts, 64>& counts_of_ranks() {
  static auto& instance = *new std::array<Counts, 64>;  // outlives every thread
  return instance;
}

Counts& counts_of(int rank) {
  auto& all = counts_of_ranks();
  return all[static_cast<std::size_t>(rank) % all.size()];
}

}  // namespace

void count_collective(int rank, std::string_view operation, std::size_t num_bytes) {
  Counts& counts = counts_of(rank);
  const std::lock_guard lock(counts.mutex);
  auto found = std::ranges::find_if(counts.all, [&](const CollectiveCount& count) {
    return count.rank == rank && count.operation == operation;
  });
  if (found == counts.all.end()) {
    found = counts.all.insert(found, {rank, std::string(operation), 0, 0});
  }
  ++found->num_calls;
  found->num_bytes += num_bytes;
}

std::vector<CollectiveCount> collective_counts() {
  std::vector<CollectiveCount> all;
  for (Counts& counts : counts_of_ranks()) {
    const std::lock_guard lock(counts.mutex);
    all.insert(all.end(), counts.all.begin(), counts.all.end());
  }
  std::ranges::sort(all, [](const CollectiveCount& a, const CollectiveCount& b) {
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
  for (Counts& counts : counts_of_ranks()) {
    const std::lock_guard lock(counts.mutex);
    counts.all.clear();
  }
}

UncountedScope::UncountedScope(std::vector<int> ranks) : ranks_(std::move(ranks)) {
  for (CollectiveCount& count : collective_counts()) {
    if (std::ranges::count(ranks_, count.rank) > 0) counts_.push_back(std::move(count));
  }
}

UncountedScope::~UncountedScope() {
  for (const int rank : ranks_) {
    Counts& counts = counts_of(rank);
    const std::lock_guard lock(counts.mutex);
    const auto is_ours = [&](const CollectiveCount& count) { return count.rank == rank; };
    std::erase_if(counts.all, is_ours);
    std::ranges::copy_if(counts_, std::back_inserter(counts.all), is_ours);
  }
}

}  // namespace lockstep::trace
