#include "ring_all_reduce.h"

#include <cstddef>
#include <vector>

#include "lab.h"

namespace lab {
namespace {

int right_of(const Rank& rank) {
  return (rank.rank() + 1) % rank.world_size();
}

int left_of(const Rank& rank) {
  return (rank.rank() + rank.world_size() - 1) % rank.world_size();
}

}  // namespace

std::span<double> part_of(std::span<double> buffer, int world_size, int index) {
  const auto num_parts = static_cast<std::size_t>(world_size);
  const auto part = static_cast<std::size_t>((index % world_size + world_size) % world_size);
  const std::size_t size = buffer.size() / num_parts;
  const std::size_t num_larger = buffer.size() % num_parts;
  const std::size_t begin = part * size + (part < num_larger ? part : num_larger);
  return buffer.subspan(begin, size + (part < num_larger ? 1 : 0));
}

void reduce_scatter(Rank& rank, std::span<double> buffer) {
  // SOLUTION begin: reduce_scatter: in n-1 steps, send one part to the right, receive one from the
  // left, add it
  const int n = rank.world_size();
  for (int step = 0; step < n - 1; ++step) {
    rank.send(part_of(buffer, n, rank.rank() - 1 - step), right_of(rank));
    const std::span<double> mine = part_of(buffer, n, rank.rank() - 2 - step);
    std::vector<double> received(mine.size());
    rank.recv(received, left_of(rank));
    for (std::size_t i = 0; i < mine.size(); ++i) mine[i] += received[i];
  }
  // SOLUTION end
}

void all_gather(Rank& rank, std::span<double> buffer) {
  // SOLUTION begin: all_gather: in n-1 steps, send one finished part to the right, receive the next
  // from the left
  const int n = rank.world_size();
  for (int step = 0; step < n - 1; ++step) {
    rank.send(part_of(buffer, n, rank.rank() - step), right_of(rank));
    rank.recv(part_of(buffer, n, rank.rank() - 1 - step), left_of(rank));
  }
  // SOLUTION end
}

void ring_all_reduce(Rank& rank, std::span<double> buffer) {
  reduce_scatter(rank, buffer);
  all_gather(rank, buffer);
}

}  // namespace lab
