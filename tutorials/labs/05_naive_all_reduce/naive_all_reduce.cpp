#include "naive_all_reduce.h"

#include <cstddef>
#include <vector>

#include "lab.h"

namespace lab {
namespace {

// The part of rank 0.
void sum_for_all(Rank& rank, std::span<double> buffer) {
  // SOLUTION begin: sum_for_all: receive every other rank's buffer, add it, then send the sum to
  // each
  std::vector<double> other(buffer.size());
  for (int peer = 1; peer < rank.world_size(); ++peer) {
    rank.recv(other, peer);
    for (std::size_t i = 0; i < buffer.size(); ++i) buffer[i] += other[i];
  }
  for (int peer = 1; peer < rank.world_size(); ++peer) rank.send(buffer, peer);
  // SOLUTION end
}

// The part of each other rank.
void get_sum_from_rank_0(Rank& rank, std::span<double> buffer) {
  // SOLUTION begin: get_sum_from_rank_0: send the buffer to rank 0 and receive the sum into it
  rank.send(buffer, 0);
  rank.recv(buffer, 0);
  // SOLUTION end
}

}  // namespace

void naive_all_reduce(Rank& rank, std::span<double> buffer) {
  if (rank.rank() == 0) {
    sum_for_all(rank, buffer);
  } else {
    get_sum_from_rank_0(rank, buffer);
  }
}

}  // namespace lab
