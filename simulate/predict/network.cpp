#include "simulate/predict/network.h"

#include <algorithm>
#include <deque>
#include <limits>

#include "engine/core/error.h"

namespace lockstep::predict {
namespace {

constexpr Hop kNoHop = std::numeric_limits<Hop>::max();

}  // namespace

Network::Network(const Topology& topology)
    : topology_(topology),
      speeds_(4 * topology.links.size() + 2 * topology.nodes.size(), 0),
      neighbours_(topology.nodes.size()),
      arrived_by_(topology.nodes.size()) {
  for (std::size_t i = 0; i < topology.links.size(); ++i) {
    const Link& link = topology.links[i];
    neighbours_[link.a].emplace_back(link.b, 2 * i);
    neighbours_[link.b].emplace_back(link.a, 2 * i + 1);
    speeds_[2 * i] = speeds_[2 * i + 1] = link.bytes_per_second;
    speeds_[crossing_hop(2 * i)] = speeds_[crossing_hop(2 * i + 1)] =
        link.kind == LinkKind::socket ? topology.staging.socket_bytes_per_second : 0;
  }
  for (std::size_t i = 0; i < topology.nodes.size(); ++i) {
    const NodeKind kind = topology.nodes[i].kind;
    if (kind == NodeKind::cpu) speeds_[node_hop(i, 0)] = topology.staging.bytes_per_second;
    if (kind != NodeKind::gpu) continue;
    speeds_[node_hop(i, 0)] = speeds_[node_hop(i, 1)] = topology.staging.gpu_bytes_per_second;
  }
  // If two ways have equally many hops, the one over NVLink is tried first.
  for (auto& neighbours : neighbours_) {
    std::ranges::stable_partition(neighbours, [&](const auto& neighbour) {
      return topology.links[neighbour.second / 2].kind == LinkKind::nvlink;
    });
  }
}

void Network::find_routes_from(std::size_t from_node) {
  std::vector<Hop>& arrived_by = arrived_by_[from_node];
  arrived_by.assign(topology_.nodes.size(), kNoHop);
  std::vector<char> seen(topology_.nodes.size(), 0);
  seen[from_node] = 1;
  std::deque<std::size_t> open{from_node};
  while (!open.empty()) {
    const std::size_t node = open.front();
    open.pop_front();
    // A GPU passes nothing on.
    if (node != from_node && topology_.nodes[node].kind == NodeKind::gpu) continue;
    for (const auto& [next, hop] : neighbours_[node]) {
      if (seen[next]) continue;
      seen[next] = 1;
      arrived_by[next] = hop;
      open.push_back(next);
    }
  }
}

const std::vector<Hop>& Network::route(std::size_t from_node, std::size_t to_node) {
  const auto [found, is_new] = routes_.try_emplace(from_node * topology_.nodes.size() + to_node);
  std::vector<Hop>& hops = found->second;
  if (!is_new) return hops;
  if (!topology_.has_peer_access(from_node, to_node)) {
    return hops = staged_route(from_node, to_node);
  }
  if (arrived_by_[from_node].empty()) find_routes_from(from_node);
  for (std::size_t node = to_node; node != from_node;) {
    const Hop hop = arrived_by_[from_node][node];
    require(hop != kNoHop, ErrorCode::Usage, "topology",
            "'{}': every way from '{}' to '{}' leads through another GPU", topology_.name,
            topology_.nodes[from_node].name, topology_.nodes[to_node].name);
    hops.push_back(hop);
    const Link& link = topology_.links[hop / 2];
    node = hop % 2 == 0 ? link.a : link.b;
  }
  std::ranges::reverse(hops);
  return hops;
}

std::vector<Hop> Network::staged_route(std::size_t from_node, std::size_t to_node) {
  const std::vector<Hop>* up = nullptr;
  std::size_t memory = 0;
  for (std::size_t i = 0; i < topology_.nodes.size(); ++i) {
    const Node& node = topology_.nodes[i];
    if (node.kind != NodeKind::cpu || node.host != topology_.nodes[from_node].host) continue;
    const std::vector<Hop>& way = route(from_node, i);
    if (up != nullptr && way.size() >= up->size()) continue;
    up = &way;
    memory = i;
  }
  std::vector<Hop> hops = *up;
  const std::vector<Hop>& down = route(memory, to_node);
  hops.insert(hops.end(), down.begin(), down.end());
  const std::size_t num_wires = hops.size();
  for (const Hop hop : {node_hop(from_node, 0), node_hop(memory, 0), node_hop(to_node, 1)}) {
    if (speeds_[hop] > 0) hops.push_back(hop);
  }
  for (std::size_t i = 0; i < num_wires; ++i) {
    if (speeds_[crossing_hop(hops[i])] > 0) hops.push_back(crossing_hop(hops[i]));
  }
  return hops;
}

std::string Network::name_of(Hop hop) const {
  const std::size_t num_wires = 2 * topology_.links.size();
  const std::size_t num_nodes = 2 * topology_.nodes.size();
  if (!is_wire(hop) && hop < num_wires + num_nodes) {
    const std::size_t place = hop - num_wires;
    const Node& node = topology_.nodes[place / 2];
    if (node.kind == NodeKind::cpu) return "through " + node.name;
    return place % 2 == 0 ? node.name + " -> host" : "host -> " + node.name;
  }
  const Hop wire = is_wire(hop) ? hop : hop - num_wires - num_nodes;
  const Link& link = topology_.links[wire / 2];
  return topology_.nodes[wire % 2 == 0 ? link.a : link.b].name + " -> " +
         topology_.nodes[wire % 2 == 0 ? link.b : link.a].name + (is_wire(hop) ? "" : " staged");
}

std::size_t Network::cpu_of(std::size_t device) const {
  const std::size_t host = topology_.nodes[gpu(device)].host;
  const auto is_socket = [&](const Node& node) {
    return node.kind == NodeKind::cpu && node.host == host;
  };
  return static_cast<std::size_t>(std::ranges::find_if(topology_.nodes, is_socket) -
                                  topology_.nodes.begin());
}

void Traffic::add(std::size_t from_node, std::size_t to_node, double num_bytes) {
  double latency = 0;
  for (const Hop hop : network_.route(from_node, to_node)) {
    bytes_[hop] += num_bytes;
    wire_ = std::max(wire_, bytes_[hop] / network_.bytes_per_second(hop));
    latency += network_.latency_seconds(hop);
  }
  latency_ = std::max(latency_, latency);
}

double Traffic::seconds() const {
  return wire_ + latency_;
}

double plan_seconds(Network& network, const plan::CollectivePlan& plan, std::size_t element_size) {
  const DeviceProfile& device = network.topology().device;
  double total = 0;
  std::vector<double> added(network.topology().gpus.size());
  for (const plan::Step& step : plan.steps) {
    Traffic traffic(network);
    std::ranges::fill(added, 0);
    for (const plan::Transfer& transfer : step.transfers) {
      const auto from = static_cast<std::size_t>(transfer.from_rank);
      const auto to = static_cast<std::size_t>(transfer.to_rank);
      const auto bytes = static_cast<double>(transfer.chunk.count * element_size);
      traffic.add(network.gpu(from), network.gpu(to), bytes);
      if (transfer.combine == plan::Combine::add) added[to] += bytes;
    }
    const double sums = 3 * *std::ranges::max_element(added) / device.memory_bytes_per_second;
    total += traffic.seconds() + sums + device.launch_seconds;
  }
  return total;
}

}  // namespace lockstep::predict
