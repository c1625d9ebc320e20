#include "naive_all_reduce.h"

#include <cstddef>
#include <vector>

#include "lab.h"

namespace lab {

void naive_all_reduce(Rank& rank, std::span<double> buffer) {
  if (rank.rank() == 0) {
    // SOLUTION begin: naive_all_reduce: on rank 0, receive every other rank's buffer, add it, and
    // send the sum to each
    std::vector<double> other(buffer.size());
    for (int peer = 1; peer < rank.world_size(); ++peer) {
      rank.recv(other, peer);
      for (std::size_t i = 0; i < buffer.size(); ++i) buffer[i] += other[i];
    }
    for (int peer = 1; peer < rank.world_size(); ++peer) rank.send(buffer, peer);
    // SOLUTION end
  } else {
    // SOLUTION begin: naive_all_reduce: on the other ranks, send the buffer to rank 0 and receive
    // the sum into it
    rank.send(buffer, 0);
    rank.recv(buffer, 0);
    // SOLUTION end
  }
}

}  // namespace lab
