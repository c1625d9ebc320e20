#include "sharded_step.h"

#include <cstddef>
#include <vector>

#include "lab.h"

namespace lab {

std::span<double> shard_of(std::span<double> buffer, int world_size, int index) {
  const auto num_shards = static_cast<std::size_t>(world_size);
  const auto shard = static_cast<std::size_t>(index);
  const std::size_t size = buffer.size() / num_shards;
  const std::size_t num_larger = buffer.size() % num_shards;
  const std::size_t begin = shard * size + (shard < num_larger ? shard : num_larger);
  return buffer.subspan(begin, size + (shard < num_larger ? 1 : 0));
}

void reduce_scatter(Rank& rank, std::span<double> buffer) {
  // SOLUTION begin: reduce_scatter: send shard j to rank j, receive the others' values of the own
  // shard, add them in the order of the ranks
  const int n = rank.world_size();
  for (int to = 0; to < n; ++to) {
    if (to != rank.rank()) rank.send(shard_of(buffer, n, to), to);
  }
  const std::span<double> mine = shard_of(buffer, n, rank.rank());
  std::vector<double> sum(mine.size());
  std::vector<double> received(mine.size());
  for (int from = 0; from < n; ++from) {
    if (from == rank.rank()) {
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += mine[i];
    } else {
      rank.recv(received, from);
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += received[i];
    }
  }
  for (std::size_t i = 0; i < sum.size(); ++i) mine[i] = sum[i];
  // SOLUTION end
}

void all_gather(Rank& rank, std::span<double> buffer) {
  // SOLUTION begin: all_gather: send the own shard to all, receive each other shard in its place
  const int n = rank.world_size();
  for (int to = 0; to < n; ++to) {
    if (to != rank.rank()) rank.send(shard_of(buffer, n, rank.rank()), to);
  }
  for (int from = 0; from < n; ++from) {
    if (from != rank.rank()) rank.recv(shard_of(buffer, n, from), from);
  }
  // SOLUTION end
}

void all_reduce(Rank& rank, std::span<double> buffer) {
  reduce_scatter(rank, buffer);
  all_gather(rank, buffer);
}

void sharded_step(Rank& rank, std::span<double> weights, std::span<double> gradients,
                  double learning_rate) {
  // SOLUTION begin: sharded_step: reduce-scatter the gradients, step on the own shard of the
  // weights, all-gather the weights
  const int n = rank.world_size();
  reduce_scatter(rank, gradients);
  const std::span<double> my_weights = shard_of(weights, n, rank.rank());
  const std::span<double> my_sum = shard_of(gradients, n, rank.rank());
  for (std::size_t i = 0; i < my_weights.size(); ++i) {
    my_weights[i] -= learning_rate * my_sum[i] / n;
  }
  all_gather(rank, weights);
  // SOLUTION end
}

}  // namespace lab
