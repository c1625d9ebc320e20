#include "distributed_sampler.h"

#include "engine/core/rng.h"
#include "lab.h"

namespace lab {

std::vector<std::size_t> epoch_order(const Epoch& epoch) {
  std::vector<std::size_t> order;
  // SOLUTION begin: epoch_order: order = all rows, shuffled by seed + epoch if the epoch asks for
  // it
  if (epoch.shuffle == Shuffle::yes) {
    order = lockstep::random_permutation(epoch.num_samples, epoch.seed + epoch.epoch);
  } else {
    for (std::size_t row = 0; row < epoch.num_samples; ++row) order.push_back(row);
  }
  // SOLUTION end
  return order;
}

std::vector<std::size_t> rows_of_rank(const std::vector<std::size_t>& order, const Epoch& epoch,
                                      std::size_t rank) {
  std::vector<std::size_t> rows;
  // SOLUTION begin: rows_of_rank: rows = every world_size-th place of the order, from rank on
  std::size_t length = epoch.num_samples / epoch.world_size;
  const bool is_uneven = epoch.num_samples % epoch.world_size != 0;
  if (is_uneven && epoch.drop_last == DropLast::no) ++length;
  for (std::size_t i = 0; i < length; ++i) {
    rows.push_back(order[(rank + i * epoch.world_size) % order.size()]);
  }
  // SOLUTION end
  return rows;
}

std::vector<std::size_t> distributed_sampler(const Epoch& epoch, std::size_t rank) {
  return rows_of_rank(epoch_order(epoch), epoch, rank);
}

}  // namespace lab
