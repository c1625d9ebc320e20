#include "simulate/predict/all_reduce_cost.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

namespace lockstep::predict {

double nvlink_ring_bytes_per_second(const std::vector<std::vector<double>>& links) {
  const std::size_t num_gpus = links.size();
  if (num_gpus < 2) return 0;
  if (num_gpus == 2) return links[0][1];
  std::vector<std::size_t> joined{0};                     // with GPU 0, directly or over others
  double unit = std::numeric_limits<double>::infinity();  // the slowest link's rate
  for (std::size_t i = 0; i < joined.size(); ++i) {
    for (std::size_t j = 0; j < num_gpus; ++j) {
      if (links[joined[i]][j] == 0) continue;
      unit = std::min(unit, links[joined[i]][j]);
      if (std::ranges::find(joined, j) == joined.end()) joined.push_back(j);
    }
  }
  if (joined.size() < num_gpus) return 0;
  double num_cycles = std::numeric_limits<double>::infinity();
  for (const std::vector<double>& row : links) {
    if (std::ranges::count_if(row, [](double speed) { return speed > 0; }) < 2) return 0;
    double num_links = 0;
    for (const double speed : row) num_links += std::floor(speed / unit + 1e-9);
    num_cycles = std::min(num_cycles, std::floor(num_links / 2));
  }
  return 2 * unit * num_cycles;
}

namespace {

enum Protocol : std::size_t { kLL, kLL128, kSimple, kNumProtocols };
using Latencies = std::array<double, kNumProtocols>;  // microseconds

constexpr Latencies kRingBase = {6.6, 14, 8.4};
constexpr Latencies kTreeBase = {6.8, 14, 8.4};
constexpr Latencies kNvlinkRing = {0.6, 1.9, 3.4};
constexpr Latencies kNvlinkTree = {0.6, 1.25, 4.0};
constexpr Latencies kPciRing = {1.0, 2.5, 5.7};
constexpr Latencies kPciTree = {1.0, 1.9, 4.0};
constexpr Latencies kNetRing = {2.7, 4.0, 14};
constexpr Latencies kNetTree = {5.0, 8.5, 14};
constexpr double kNvlsLatency = 25;
constexpr double kNvlsEfficiency = 0.85;  // Hopper
constexpr std::size_t kMinNvlsRanks = 5;

// Trees deviate from the model at middle sizes: the share of it that they reach, for 64 B, 128 B,
// ... 128 MB.
constexpr std::array<std::array<double, 22>, kNumProtocols> kTreeCorrection = {
    {{1.0, 1.0, 1.0, 1.0, .9, .8, .7, .7, .7,  .7,  .6,
      .5,  .4,  .4,  .5,  .6, .7, .8, .9, 1.0, 1.0, 1.0},
     {1.0, 1.0, 1.0, 1.0, 1.0, .9, .8, .8, .8, .7, .6, .6, .6, .5, .6, .6, .7, .7, .8, .9, .9, 1.0},
     {.9, .9, .9, .9, .9, .9, .9, .8, .7, .6, .6, .5, .5, .5, .5, .5, .5, .6, .6, .7, .8, .9}}};

double tree_correction(Protocol protocol, double num_bytes) {
  const auto units = static_cast<std::uint64_t>(std::max(num_bytes / 64, 1.0));
  const auto index = static_cast<std::size_t>(std::bit_width(units) - 1);
  return index < 22 ? kTreeCorrection[protocol][index] : 1;
}

double extra_step(const NcclGroup& group) {
  return group.extra_step_seconds * 1e6;
}

double extra_network(const NcclGroup& group) {
  return group.extra_network_seconds * 1e6;
}

// Times that the bytes go around the ring: reduced and gathered, or one of them; rooted: all of
// them from the root around to the last rank, or the way back.
enum class Rounds { one, two, rooted };

double ring_seconds(const NcclGroup& group, Protocol protocol, double num_bytes, Rounds rounds) {
  const double times = rounds == Rounds::two ? 2 : 1;
  const auto ranks = static_cast<double>(group.num_ranks);
  const auto hosts = static_cast<double>(group.num_hosts);
  const double steps = rounds == Rounds::rooted ? ranks : times * (ranks - 1);
  const Latencies& intra = group.over_nvlink ? kNvlinkRing : kPciRing;
  const double network_steps = times * (hosts - 1);
  // With several hosts, LL's flags take a detour inside each.
  const double detour = group.num_hosts > 1 && protocol == kLL ? 1.8 : 1;
  double latency = kRingBase[protocol] +
                   (steps - network_steps) * (intra[protocol] * detour + extra_step(group)) +
                   network_steps * (kNetRing[protocol] + extra_network(group));
  // The plateau of an all-reduce's ring between hosts.
  const bool is_large = rounds == Rounds::two && num_bytes >= ranks / 16 * 65536;
  if (protocol == kSimple && group.num_hosts > 1 && is_large) latency *= 1.9;
  const double share = protocol == kLL ? 0.25 : protocol == kLL128 ? 0.92 : 1;
  const double bus =
      rounds == Rounds::rooted ? group.chain_bytes_per_second : group.bus_bytes_per_second;
  const double bandwidth = bus * share * ranks / steps;
  return latency * 1e-6 + num_bytes / bandwidth;
}

double tree_seconds(const NcclGroup& group, Protocol protocol, double num_bytes) {
  const auto hosts = static_cast<double>(group.num_hosts);
  const double per_host = static_cast<double>(group.num_ranks) / hosts;
  const Latencies& intra = group.over_nvlink ? kNvlinkTree : kPciTree;
  const double detour = group.num_hosts > 1 && protocol == kLL ? 1.8 : 1;
  const double latency =
      kTreeBase[protocol] + 2 * ((per_host - 1) * (intra[protocol] * detour + extra_step(group)) +
                                 std::log2(hosts) * (kNetTree[protocol] + extra_network(group)));
  const double ll128 = group.num_hosts == 1 ? 7.0 / 9 : 0.915;
  const double share = protocol == kLL ? 1 / 3.8 : protocol == kLL128 ? ll128 : 1;
  const double bandwidth =
      0.9 * group.bus_bytes_per_second * share / 2 * tree_correction(protocol, num_bytes);
  return latency * 1e-6 + num_bytes / bandwidth;
}

// GPU i to GPU j, of the first num_devices of host 0, over their direct links.
std::vector<std::vector<double>> nvlinks_between(const Topology& topology, std::size_t num_gpus) {
  std::vector<std::vector<double>> links(num_gpus, std::vector<double>(num_gpus, 0));
  for (std::size_t i = 0; i < num_gpus; ++i) {
    for (std::size_t j = 0; j < num_gpus; ++j) {
      for (const Link& link : topology.links) {
        const bool joins = (link.a == topology.gpus[i] && link.b == topology.gpus[j]) ||
                           (link.b == topology.gpus[i] && link.a == topology.gpus[j]);
        if (joins && link.kind == LinkKind::nvlink) links[i][j] += link.bytes_per_second;
      }
    }
  }
  return links;
}

// The slowest bandwidth of the first num_gpus to an NVLink switch; 0 without one.
double nvswitch_bytes_per_second(const Topology& topology, std::size_t num_gpus) {
  double slowest = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < num_gpus; ++i) {
    double speed = 0;
    for (const Link& link : topology.links) {
      const std::size_t other = link.a == topology.gpus[i]   ? link.b
                                : link.b == topology.gpus[i] ? link.a
                                                             : topology.gpus[i];
      if (topology.nodes[other].kind == NodeKind::nvswitch) speed += link.bytes_per_second;
    }
    slowest = std::min(slowest, speed);
  }
  return slowest;
}

// The ring over PCIe and sockets: every device, or all but the last, sends a byte to the next one
// at once.
double shared_ring_bytes_per_second(Network& network, std::size_t num_devices,
                                    std::size_t num_senders) {
  Traffic traffic(network);
  for (std::size_t i = 0; i < num_senders; ++i) {
    traffic.add(network.gpu(i), network.gpu((i + 1) % num_devices), 1);
  }
  return 1 / traffic.wire_seconds();
}

// How much longer than usual the latencies of the links from one device to another are.
double extra_seconds(Network& network, std::size_t from_device, std::size_t to_device) {
  double extra = 0;
  for (const Hop hop : network.route(network.gpu(from_device), network.gpu(to_device))) {
    if (!network.is_wire(hop)) continue;
    const Link& link = network.topology().links[hop / 2];
    extra += std::max(0.0, link.latency_seconds - usual_latency_seconds(link.kind));
  }
  return extra;
}

bool is_hopper(const Topology& topology) {
  return topology.device.name.find("H100") != std::string::npos ||
         topology.device.name.find("H200") != std::string::npos;
}

}  // namespace

NcclGroup nccl_group(Network& network, std::size_t num_devices) {
  const Topology& topology = network.topology();
  const std::size_t per_host = std::min(num_devices, topology.gpus_per_host());
  NcclGroup group;
  group.num_ranks = num_devices;
  group.num_hosts = (num_devices + per_host - 1) / per_host;
  if (num_devices < 2) return group;
  double intra = std::numeric_limits<double>::infinity();
  if (per_host > 1) {
    const double by_switch = nvswitch_bytes_per_second(topology, per_host);
    const double by_links = nvlink_ring_bytes_per_second(nvlinks_between(topology, per_host));
    group.over_nvlink = by_switch > 0 || by_links > 0;
    intra = by_switch > 0  ? by_switch
            : by_links > 0 ? by_links
                           : shared_ring_bytes_per_second(network, per_host, per_host);
    group.chain_bytes_per_second =
        group.over_nvlink ? intra : shared_ring_bytes_per_second(network, per_host, per_host - 1);
    if (is_hopper(topology) && by_switch > 0 && group.num_hosts == 1 && per_host >= kMinNvlsRanks) {
      group.nvls_bytes_per_second = by_switch * kNvlsEfficiency;
    }
  }
  for (std::size_t i = 0; i < per_host; ++i) {
    group.extra_step_seconds =
        std::max(group.extra_step_seconds, extra_seconds(network, i, (i + 1) % per_host));
  }
  if (group.num_hosts > 1) group.extra_network_seconds = extra_seconds(network, 0, per_host);
  group.has_ll128 = group.over_nvlink && topology.device.name.find("P100") == std::string::npos;
  const double network_speed = group.num_hosts > 1 ? topology.network_bytes_per_second()
                                                   : std::numeric_limits<double>::infinity();
  group.bus_bytes_per_second = std::min(intra, network_speed);
  return group;
}

double nccl_all_reduce_seconds(const NcclGroup& group, double num_bytes, NcclAlgorithm algorithm) {
  if (group.num_ranks < 2 || num_bytes <= 0) return 0;
  double best = std::numeric_limits<double>::infinity();
  const bool may_nvls = group.nvls_bytes_per_second > 0 && algorithm != NcclAlgorithm::ring;
  // Up to the switch and down again takes two steps.
  const double nvls_latency = kNvlsLatency * 1e-6 + 2 * group.extra_step_seconds;
  if (may_nvls) best = nvls_latency + num_bytes / group.nvls_bytes_per_second;
  if (algorithm == NcclAlgorithm::nvls && may_nvls) return best;
  for (const Protocol protocol : {kLL, kLL128, kSimple}) {
    if (protocol == kLL128 && !group.has_ll128) continue;
    best = std::min(best, ring_seconds(group, protocol, num_bytes, Rounds::two));
    if (algorithm == NcclAlgorithm::ring) continue;
    best = std::min(best, tree_seconds(group, protocol, num_bytes));
  }
  return best;
}

namespace {

double fastest_ring_seconds(const NcclGroup& group, double num_bytes, Rounds rounds) {
  if (group.num_ranks < 2 || num_bytes <= 0) return 0;
  double best = std::numeric_limits<double>::infinity();
  for (const Protocol protocol : {kLL, kLL128, kSimple}) {
    if (protocol == kLL128 && !group.has_ll128) continue;
    best = std::min(best, ring_seconds(group, protocol, num_bytes, rounds));
  }
  return best;
}

}  // namespace

double nccl_half_seconds(const NcclGroup& group, double num_bytes) {
  return fastest_ring_seconds(group, num_bytes, Rounds::one);
}

double nccl_rooted_seconds(const NcclGroup& group, double num_bytes) {
  return fastest_ring_seconds(group, num_bytes, Rounds::rooted);
}

double nccl1_ring_bytes_per_second(Network& network, std::size_t num_devices) {
  return num_devices < 2 ? 0 : shared_ring_bytes_per_second(network, num_devices, num_devices);
}

double nccl1_all_reduce_seconds(double ring_bytes_per_second, std::size_t num_ranks,
                                double num_bytes) {
  if (num_ranks < 2 || num_bytes <= 0) return 0;
  const auto ranks = static_cast<double>(num_ranks);
  const double latency = kRingBase[kSimple] + 2 * (ranks - 1) * kPciRing[kSimple];
  return latency * 1e-6 + num_bytes * 2 * (ranks - 1) / ranks / ring_bytes_per_second;
}

AllReduceCost::AllReduceCost(Network& network, std::size_t num_devices,
                             std::optional<plan::AllReducePlan> plan)
    : network_(network), num_devices_(num_devices), plan_(plan) {
  if (!plan_) group_ = nccl_group(network, num_devices);
}

double AllReduceCost::seconds(std::size_t num_bytes) {
  if (!plan_) return nccl_all_reduce_seconds(group_, static_cast<double>(num_bytes));
  const auto [found, is_new] = known_.try_emplace(num_bytes, 0);
  if (is_new) found->second = own_plan_seconds(network_, num_devices_, *plan_, num_bytes);
  return found->second;
}

double own_plan_seconds(Network& network, std::size_t num_devices, plan::AllReducePlan plan,
                        std::size_t num_bytes) {
  std::vector<int> host_of_rank;
  for (std::size_t i = 0; i < num_devices; ++i) {
    host_of_rank.push_back(static_cast<int>(network.topology().nodes[network.gpu(i)].host));
  }
  return plan_seconds(network, plan::all_reduce_plan(plan, host_of_rank, num_bytes / sizeof(float)),
                      sizeof(float));
}

}  // namespace lockstep::predict
