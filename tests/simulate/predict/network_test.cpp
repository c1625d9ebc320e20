#include "simulate/predict/network.h"

#include <gtest/gtest.h>

#include "engine/plan/algorithms.h"
#include "simulate/predict/all_reduce_cost.h"
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

TEST(Network, WithoutPeerAccessAllMessagesShareHostMemory) {
  const Topology topology = find_topology("rtx3090-pcie4-8");
  Network network(topology);
  Traffic one(network);
  one.add(network.gpu(0), network.gpu(1), 12e9);  // a GPU's own copies
  EXPECT_DOUBLE_EQ(one.wire_seconds(), 1);
  one.add(network.gpu(1), network.gpu(0), 12e9);  // a socket's memory has no direction
  EXPECT_DOUBLE_EQ(one.wire_seconds(), 1);
  one.add(network.gpu(2), network.gpu(3), 12e9);
  EXPECT_DOUBLE_EQ(one.wire_seconds(), 36.0 / 26);
  Traffic across(network);
  across.add(network.gpu(0), network.gpu(7), 6.5e9);
  EXPECT_DOUBLE_EQ(across.wire_seconds(), 1);
  Traffic to_host(network);  // a batch is not staged
  to_host.add(network.cpu_of(0), network.gpu(0), 24e9);
  EXPECT_DOUBLE_EQ(to_host.wire_seconds(), 1);
}

TEST(Network, ABridgeIsTakenBeforeHostMemory) {
  const Topology topology = find_topology("rtx3090-nvlink-8");
  Network network(topology);
  Traffic traffic(network);
  traffic.add(network.gpu(0), network.gpu(1), 50e9);
  EXPECT_DOUBLE_EQ(traffic.wire_seconds(), 1);
  traffic.add(network.gpu(1), network.gpu(2), 26e9);
  EXPECT_DOUBLE_EQ(traffic.wire_seconds(), 26.0 / 12);
}

// --- NCCL's model

double bus_gigabytes(const std::string& name, std::size_t devices) {
  const Topology topology = find_topology(name);
  Network network(topology);
  return nccl_group(network, devices).bus_bytes_per_second / 1e9;
}

TEST(NcclModel, FindsTheRingsOfADgx1) {
  EXPECT_DOUBLE_EQ(bus_gigabytes("dgx1-p100", 8), 72);   // four rings of 18
  EXPECT_DOUBLE_EQ(bus_gigabytes("dgx1-v100", 8), 120);  // six of 20
  EXPECT_DOUBLE_EQ(bus_gigabytes("dgx1-p100", 2), 18);   // one link
  EXPECT_DOUBLE_EQ(bus_gigabytes("dgx1-v100", 7), 80);
  EXPECT_LT(bus_gigabytes("dgx1-v100", 5), 20);  // the fifth has links to one of the others
}

TEST(NcclModel, APcieRingSharesItsBandwidth) {
  EXPECT_DOUBLE_EQ(bus_gigabytes("titanx-pascal-dual-root-8", 4), 11.2);
  EXPECT_DOUBLE_EQ(bus_gigabytes("titanx-pascal-dual-root-8", 8), 6);  // QPI
  EXPECT_DOUBLE_EQ(bus_gigabytes("rtx4090-pcie4-8", 2), 12);
  EXPECT_DOUBLE_EQ(bus_gigabytes("rtx4090-pcie4-8", 4), 26.0 / 4);  // one pipe for all flows
  EXPECT_DOUBLE_EQ(bus_gigabytes("rtx5090-pcie5-8", 4), 35);        // as published
  EXPECT_DOUBLE_EQ(bus_gigabytes("rtx5090-pcie5-8", 8), 28);
}

TEST(NcclModel, BetweenHostsTheNetworkPortsBound) {
  EXPECT_DOUBLE_EQ(bus_gigabytes("dgx1-v100*2@100gbe", 16), 12);
  EXPECT_DOUBLE_EQ(bus_gigabytes("hgx-h100-8*4@8x100gbe", 32), 96);
}

TEST(NcclModel, NvlsNeedsHopperAndFiveRanks) {
  const Topology h200 = find_topology("hgx-h200-8");
  Network network(h200);
  EXPECT_EQ(nccl_group(network, 4).nvls_bytes_per_second, 0);
  EXPECT_GT(nccl_group(network, 5).nvls_bytes_per_second, 0);
  const NcclGroup group = nccl_group(network, 8);
  EXPECT_LT(nccl_all_reduce_seconds(group, 1e9),
            nccl_all_reduce_seconds(group, 1e9, NcclAlgorithm::ring));
}

TEST(NcclModel, IsPiecewise) {
  const Topology v100 = find_topology("dgx1-v100");
  Network network(v100);
  const NcclGroup group = nccl_group(network, 8);
  // Small: the ring of LL, 6.6 + 14 * 0.6 us. Large: the ring of Simple at bus bandwidth.
  EXPECT_NEAR(nccl_all_reduce_seconds(group, 8), 15.0e-6, 0.3e-6);
  EXPECT_NEAR(nccl_all_reduce_seconds(group, 1e9), 1e9 * 1.75 / 120e9, 1e-4);
  EXPECT_EQ(nccl_all_reduce_seconds(NcclGroup{}, 1e9), 0);
}

TEST(NcclModel, AReduceScatterIsHalfOfARing) {
  const Topology v100 = find_topology("dgx1-v100");
  Network network(v100);
  const NcclGroup group = nccl_group(network, 8);
  // 6.6 + 7 * 0.6 us; and each byte goes around once.
  EXPECT_NEAR(nccl_half_seconds(group, 8), 10.8e-6, 0.3e-6);
  EXPECT_NEAR(nccl_half_seconds(group, 1e9), 1e9 * 0.875 / 120e9, 1e-4);
  EXPECT_EQ(nccl_half_seconds(NcclGroup{}, 1e9), 0);
  // An NVSwitch makes an all-reduce faster than two of them; no tree shortens the way through many
  // hosts.
  const Topology h200 = find_topology("hgx-h200-8*64@8x400gbe");
  Network hosts(h200);
  for (const std::size_t devices : {8, 512}) {
    const NcclGroup all = nccl_group(hosts, devices);
    EXPECT_GT(2 * nccl_half_seconds(all, 100e6), nccl_all_reduce_seconds(all, 100e6)) << devices;
  }
  EXPECT_GT(nccl_half_seconds(nccl_group(hosts, 512), 1e6), 511e-6);
}

// From one rank to all, each byte crosses every link once, however many ranks there are.
TEST(NcclModel, BroadcastsTakeAsLongForAnyNumberOfRanks) {
  const Topology titan = find_topology("titanx-pascal-dual-root-8");
  Network network(titan);
  const NcclGroup four = nccl_group(network, 4);
  EXPECT_NEAR(nccl_rooted_seconds(four, 1e9), 1e9 / four.bus_bytes_per_second, 1e-4);
  EXPECT_NEAR(nccl_rooted_seconds(four, 1e9), nccl_rooted_seconds(nccl_group(network, 2), 1e9),
              1e-4);
  EXPECT_NEAR(nccl_rooted_seconds(four, 8), 10.6e-6, 0.1e-6);  // 6.6 + 4 us
}

TEST(NcclModel, LongLatencyCostsInEveryStep) {
  Topology machine = find_topology("titanx-pascal-dual-root-8");
  const auto seconds = [&] {
    Network network(machine);
    return nccl_all_reduce_seconds(nccl_group(network, 2), 8, NcclAlgorithm::ring);
  };
  const double usual = seconds();
  for (Link& link : machine.links) link.latency_seconds = 0;  // NCCL's own constants stay
  EXPECT_DOUBLE_EQ(seconds(), usual);
  for (Link& link : machine.links) {
    link.latency_seconds = usual_latency_seconds(link.kind) + 100e-6;
  }
  // 2 (n - 1) steps, each over the links from a device up to the switch and down again.
  EXPECT_NEAR(seconds() - usual, 2 * 2 * 100e-6, 1e-9);
}

TEST(NcclModel, LeavesNvlinkBetweenTheHalvesOfADgx) {
  const Topology p100 = find_topology("dgx1-p100");
  Network network(p100);
  EXPECT_DOUBLE_EQ(nccl1_ring_bytes_per_second(network, 4) / 1e9, 18);
  EXPECT_DOUBLE_EQ(nccl1_ring_bytes_per_second(network, 8) / 1e9, 6);
}

}  // namespace
}  // namespace lockstep::predict
