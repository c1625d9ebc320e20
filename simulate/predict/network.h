// Messages over a topology's links: the route of each, and the time of messages that are under way
// together.
//
// Messages that cross a link together share it, so a set of messages takes as long as the fullest
// direction of any link needs for its bytes, plus the latency of the longest route. That is exact
// for messages that begin together and are cut finely; it ignores that links are seldom shared
// perfectly fairly.
#pragma once

#include <cstddef>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/plan/collective_plan.h"
#include "simulate/predict/topology.h"

namespace lockstep::predict {

// A link in one direction: 2 * index of the link, + 1 from b to a. Numbers from 2 * links on are no
// wires but the shared ways through host memory (Staging): each GPU's copies out and in, each
// socket's memory, and what crosses each link between sockets. Latency: the links' alone.
using Hop = std::size_t;

class Network {
 public:
  explicit Network(const Topology& topology);  // which must outlive the network

  const Topology& topology() const { return topology_; }

  // The route from one node to another with the fewest hops, through no other GPU; among those one
  // over NVLink, else the one that comes first in the file. Between GPUs without peer access: over
  // the sender's socket, and through its memory. REQUIRES: they are connected.
  const std::vector<Hop>& route(std::size_t from_node, std::size_t to_node);

  std::size_t gpu(std::size_t device) const { return topology_.gpus[device]; }
  // The socket that the device's host uses for a batch and for sums: the first one.
  std::size_t cpu_of(std::size_t device) const;

  bool is_wire(Hop hop) const { return hop < 2 * topology_.links.size(); }
  double bytes_per_second(Hop hop) const { return speeds_[hop]; }
  double latency_seconds(Hop hop) const {
    return is_wire(hop) ? topology_.links[hop / 2].latency_seconds : 0;
  }
  std::size_t num_hops() const { return speeds_.size(); }
  // "plx0 -> cpu0", or "through the memory of cpu0".
  std::string name_of(Hop hop) const;

 private:
  void find_routes_from(std::size_t from_node);
  std::vector<Hop> staged_route(std::size_t from_node, std::size_t to_node);
  // Hops of the ways through host memory. `second`: a GPU's copies in, not out.
  Hop node_hop(std::size_t node, std::size_t second) const {
    return 2 * topology_.links.size() + 2 * node + second;
  }
  Hop crossing_hop(Hop socket_link) const {
    return 2 * topology_.links.size() + 2 * topology_.nodes.size() + socket_link;
  }

  const Topology& topology_;
  std::vector<double> speeds_;  // indexed by hop; 0: it doesn't bound
  std::vector<std::vector<std::pair<std::size_t, Hop>>> neighbours_;  // indexed by node
  std::unordered_map<std::size_t, std::vector<Hop>> routes_;          // key: from * nodes + to
  std::vector<std::vector<Hop>> arrived_by_;  // [source][node]; empty: not searched yet
};

// Messages that are under way together.
class Traffic {
 public:
  explicit Traffic(Network& network) : network_(network), bytes_(network.num_hops(), 0) {}

  void add(std::size_t from_node, std::size_t to_node, double num_bytes);
  double seconds() const;  // time on the fullest link, plus the latency
  double wire_seconds() const { return wire_; }
  double latency_seconds() const { return latency_; }

 private:
  Network& network_;
  std::vector<double> bytes_;
  double wire_ = 0;
  double latency_ = 0;
};

// Charges a collective plan step by step: its messages, the sums that a receiver computes from them
// (two reads and a write of its memory for each byte), and a kernel's launch per step.
// Source of the steps: engine/plan, the same plan that the engine runs.
double plan_seconds(Network& network, const plan::CollectivePlan& plan, std::size_t element_size);

}  // namespace lockstep::predict
