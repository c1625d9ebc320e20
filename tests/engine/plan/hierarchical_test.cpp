// The all-reduce for several hosts, by the serial interpreter.
#include "engine/plan/algorithms.h"

#include "tests/engine/plan/plan_test_data.h"

namespace lockstep::plan {
namespace {

// Hosts of equal and of different sizes, one rank per host, one host, ranks dealt out in turn.
const std::vector<std::vector<int>> kHosts{
    {0, 0, 1, 1}, {0, 0, 0, 1}, {0, 1, 2},          {0, 0, 0, 0},
    {7, 3, 7, 3}, {0, 1},       {0, 0, 1, 1, 2, 2}, {0, 0, 0, 1, 1, 2, 2, 2, 2}};

TEST(HierarchicalAllReduce, GivesTheSameBitsOnEveryRank) {
  for (const std::vector<int>& hosts : kHosts) {
    for (const std::size_t length : kLengths) {
      SCOPED_TRACE(::testing::Message() << hosts.size() << " ranks, " << length << " elements");
      const int world_size = static_cast<int>(hosts.size());
      RankBuffers exact = integer_buffers(world_size, length);
      const std::vector<double> sum = sum_in_rank_order(exact);
      interpret(hierarchical_all_reduce(hosts, length), exact);
      for (const std::vector<double>& buffer : exact) ASSERT_EQ(buffer, sum);
      RankBuffers rounded = rounding_buffers(world_size, length);
      interpret(hierarchical_all_reduce(hosts, length), rounded);
      for (const std::vector<double>& buffer : rounded) ASSERT_EQ(buffer, rounded.front());
    }
  }
}

// Elements that cross from one host to another.
std::size_t elements_between_hosts(const CollectivePlan& plan, std::span<const int> hosts) {
  std::size_t count = 0;
  for (const Step& step : plan.steps) {
    for (const Transfer& transfer : step.transfers) {
      const int from = hosts[static_cast<std::size_t>(transfer.from_rank)];
      if (from != hosts[static_cast<std::size_t>(transfer.to_rank)]) count += transfer.chunk.count;
    }
  }
  return count;
}

TEST(HierarchicalAllReduce, SendsEveryElementOnceEachWayBetweenHosts) {
  const std::vector<int> hosts{0, 0, 0, 0, 1, 1, 1, 1};
  EXPECT_EQ(elements_between_hosts(hierarchical_all_reduce(hosts, 1000), hosts), 2 * 1000u);
  EXPECT_EQ(elements_between_hosts(hierarchical_all_reduce(hosts, 1'000'000), hosts), 2'000'000u);
}

TEST(HierarchicalAllReduce, LetsEveryRankCarryItsShareBetweenHosts) {
  const std::vector<int> hosts{0, 0, 1, 1};
  const CollectivePlan plan = hierarchical_all_reduce(hosts, 1'000'000);
  for (const int rank : {0, 1, 2, 3}) EXPECT_EQ(elements_sent(plan, rank), 1'500'000u);
}

}  // namespace
}  // namespace lockstep::plan
