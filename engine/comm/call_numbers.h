// The sequence numbers of one rank's calls: collectives are counted together, messages for each
// pair of ranks and each direction, since only these two know of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/comm/collective_call.h"

namespace lockstep::comm {

class CallNumbers {
 public:
  explicit CallNumbers(int world_size)
      : num_sent_(static_cast<std::size_t>(world_size)), num_received_(num_sent_.size()) {}

  // peer: of send and recv.
  std::uint64_t next(Operation operation, int peer) {
    if (!is_point_to_point(operation)) return num_collectives_++;
    auto& counts = operation == Operation::send ? num_sent_ : num_received_;
    return counts[static_cast<std::size_t>(peer)]++;
  }
  std::uint64_t num_collectives() const { return num_collectives_; }

 private:
  std::uint64_t num_collectives_ = 0;
  std::vector<std::uint64_t> num_sent_;      // to each rank
  std::vector<std::uint64_t> num_received_;  // from each rank
};

}  // namespace lockstep::comm
