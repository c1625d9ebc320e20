#include "simulate/predict/network.h"

#include <gtest/gtest.h>

#include "engine/plan/ring.h"
#include "simulate/predict/step_work.h"

namespace lockstep::predict {
namespace {

class DualRoot : public ::testing::Test {
 protected:
  const Topology topology_ = find_topology("titanx-maxwell-dual-root-8");
  Network network_{topology_};
};

TEST_F(DualRoot, MessagesShareTheLinksOfTheirWays) {
  Traffic one(network_);
  one.add(network_.gpu(0), network_.gpu(2), 11.2e9);
  EXPECT_DOUBLE_EQ(one.wire_seconds(), 1);
  one.add(network_.gpu(1), network_.gpu(3), 11.2e9);  // the same switches' links upwards
  EXPECT_DOUBLE_EQ(one.wire_seconds(), 2);
  one.add(network_.gpu(2), network_.gpu(0), 11.2e9);  // the other direction is free
  EXPECT_DOUBLE_EQ(one.wire_seconds(), 2);
}

TEST_F(DualRoot, BetweenSocketsQpiBounds) {
  Traffic traffic(network_);
  traffic.add(network_.gpu(0), network_.gpu(7), 6e9);
  EXPECT_DOUBLE_EQ(traffic.wire_seconds(), 1);
}

TEST_F(DualRoot, RingsTakeTheSlowestLink) {
  const std::size_t elements = 100'000'000;
  const double seconds = plan_seconds(network_, plan::ring_all_reduce(4, elements), sizeof(float));
  const double wire = 1.5 * 4e8 / 11.2e9;
  EXPECT_GT(seconds, wire);
  EXPECT_LT(seconds, 1.1 * wire);
}

// 258 MB, evenly spread: published for a PCIe3 server with 2 GPUs as 23.1 ms.
TEST_F(DualRoot, TwoDevicesReduceAndBroadcastAsPublished) {
  const Exchange exchange =
      reduce_on_devices(network_, 2, std::vector<std::size_t>(64, 258'000'000 / 64));
  EXPECT_NEAR(exchange.reduce_seconds + exchange.broadcast_seconds, 23.1e-3, 0.1 * 23.1e-3);
}

TEST(Network, PrefersNvlink) {
  const Topology topology = find_topology("hgx-h200-8");
  Network network(topology);
  Traffic traffic(network);
  traffic.add(network.gpu(0), network.gpu(1), 370.8e9);
  EXPECT_DOUBLE_EQ(traffic.wire_seconds(), 1);
}

}  // namespace
}  // namespace lockstep::predict
