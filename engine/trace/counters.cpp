#include "engine/trace/counters.h"

#include <algorithm>
#include <mutex>
#include <tuple>

namespace lockstep::trace {

namespace {

struct Counts {
  std::mutex mutex;
  std::vector<CollectiveCount> all;  // a handful of operations per rank: searched one by one
};

Counts& counts() {
  static Counts& instance = *new Counts;  // outlives every thread
  return instance;
}

}  // namespace

void count_collective(int rank, std::string_view operation, std::size_t num_bytes) {
  const std::lock_guard lock(counts().mutex);
  auto found = std::ranges::find_if(counts().all, [&](const CollectiveCount& count) {
    return count.rank == rank && count.operation == operation;
  });
  if (found == counts().all.end()) {
    found = counts().all.insert(found, {rank, std::string(operation), 0, 0});
  }
  ++found->num_calls;
  found->num_bytes += num_bytes;
}

std::vector<CollectiveCount> collective_counts() {
  std::unique_lock lock(counts().mutex);
  std::vector<CollectiveCount> all = counts().all;
  lock.unlock();
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
  const std::lock_guard lock(counts().mutex);
  counts().all.clear();
}

UncountedScope::UncountedScope(std::vector<int> ranks) : ranks_(std::move(ranks)) {
  for (CollectiveCount& count : collective_counts()) {
    if (std::ranges::count(ranks_, count.rank) > 0) counts_.push_back(std::move(count));
  }
}

UncountedScope::~UncountedScope() {
  const std::lock_guard lock(counts().mutex);
  std::erase_if(counts().all, [this](const CollectiveCount& count) {
    return std::ranges::count(ranks_, count.rank) > 0;
  });
  counts().all.insert(counts().all.end(), counts_.begin(), counts_.end());
}

}  // namespace lockstep::trace
