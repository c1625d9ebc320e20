#include "distributed_sampler.h"

#include "engine/core/rng.h"
#include "lab.h"

namespace lab {

std::vector<std::size_t> distributed_sampler(const Epoch& epoch, std::size_t rank) {
  std::vector<std::size_t> order;
  // SOLUTION begin: distributed_sampler: order = the epoch's rows, the same on all ranks
  if (epoch.shuffle == Shuffle::yes) {
    order = lockstep::random_permutation(epoch.num_samples, epoch.seed + epoch.epoch);
  } else {
    for (std::size_t row = 0; row < epoch.num_samples; ++row) order.push_back(row);
  }
  // SOLUTION end
  std::vector<std::size_t> rows;
  // SOLUTION begin: distributed_sampler: rows = every world_size-th place of the order, from rank
  // on
  std::size_t length = epoch.num_samples / epoch.world_size;
  const bool is_uneven = epoch.num_samples % epoch.world_size != 0;
  if (is_uneven && epoch.drop_last == DropLast::no) ++length;
  for (std::size_t i = 0; i < length; ++i) {
    rows.push_back(order[(rank + i * epoch.world_size) % order.size()]);
  }
  // SOLUTION end
  return rows;
}

}  // namespace lab
