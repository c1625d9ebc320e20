#include "engine/comm/run_ranks.h"

#include <gtest/gtest.h>

#include "engine/runtime/cpu_cores.h"

namespace lockstep::comm {
namespace {

using runtime::cores_of_this_thread;

std::vector<std::vector<int>> cores_of_ranks(std::size_t world_size) {
  std::vector<std::vector<int>> cores(world_size);
  run_ranks(static_cast<int>(world_size), [&](Communicator& communicator) {
    cores[static_cast<std::size_t>(communicator.rank())] = cores_of_this_thread();
  });
  return cores;
}

TEST(RunRanks, EachRankHasCoresOfItsOwnAsLongAsThereAreEnough) {
  const std::vector<int> allowed = runtime::allowed_cores();
  for (const std::size_t world_size : {std::size_t{1}, allowed.size()}) {
    const auto cores = cores_of_ranks(world_size);
    for (std::size_t rank = 0; rank < world_size; ++rank) {
      EXPECT_EQ(cores[rank], runtime::part_of_cores(allowed, rank, world_size)) << rank;
    }
  }
  const std::size_t too_many = allowed.size() + 1;
  EXPECT_EQ(cores_of_ranks(too_many), std::vector(too_many, allowed));
  EXPECT_EQ(cores_of_this_thread(), allowed);
}

}  // namespace
}  // namespace lockstep::comm
