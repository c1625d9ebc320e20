// The counts of collectives: how often each was called, and how many bytes each rank sent for it
// (count_collective in span.h).
//
// They always count, whether spans are recorded or not: a call costs an uncontended lock (some tens
// of nanoseconds), and collectives take microseconds. Ranks that are threads are counted
// separately.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace lockstep::trace {

struct CollectiveCount {
  int rank = 0;
  std::string operation;
  std::size_t num_calls = 0;
  std::size_t num_bytes = 0;

  bool operator==(const CollectiveCount&) const = default;
};

// All counts since the last reset, by rank, then operation. Any thread, any time.
std::vector<CollectiveCount> collective_counts();

// Bytes that rank sent for all operations since the last reset.
std::size_t collective_bytes_of(int rank);

void reset_collective_counts();

// While it lives, these ranks' collectives are not counted: they belong to a check, not to the
// training that is measured.
// REQUIRES: meanwhile only the caller's line of work, and those it waits for, count for them.
class UncountedScope {
 public:
  explicit UncountedScope(std::vector<int> ranks);
  ~UncountedScope();
  UncountedScope(const UncountedScope&) = delete;
  UncountedScope& operator=(const UncountedScope&) = delete;

 private:
  std::vector<int> ranks_;
  std::vector<CollectiveCount> counts_;  // these ranks' counts, as they were
};

}  // namespace lockstep::trace
