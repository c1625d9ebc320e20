// Reading a topology: docs/prediction.md describes the file.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <utility>

#include "engine/core/shown_text.h"
#include "engine/core/suggestion.h"
#include "engine/predict/json_file.h"
#include "engine/predict/topology.h"

namespace lockstep::predict {
namespace {

constexpr std::string_view kSchema = "lockstep.topology/1";
constexpr std::size_t kMaxGpusPerHost = 64;
constexpr std::size_t kMaxNodes = 1024;

constexpr std::array<std::pair<std::string_view, NodeKind>, 5> kNodeKinds = {
    {{"gpu", NodeKind::gpu},
     {"switch", NodeKind::pcie_switch},
     {"cpu", NodeKind::cpu},
     {"nvswitch", NodeKind::nvswitch},
     {"nic", NodeKind::nic}}};

// A link's kind, and its latency where the file says none: what NCCL's LL protocol takes for a
// step over such a link (src/graph/tuning.cc); between sockets the same as PCIe.
struct LinkWord {
  std::string_view word;
  LinkKind kind;
  double latency_seconds;
};
constexpr std::array<LinkWord, 4> kLinkKinds = {{{"nvlink", LinkKind::nvlink, 0.6e-6},
                                                 {"pcie", LinkKind::pcie, 1.0e-6},
                                                 {"socket", LinkKind::socket, 1.0e-6},
                                                 {"network", LinkKind::network, 2.7e-6}}};

Node read_node(const JsonFile& file, const std::string& place, const Topology& topology) {
  const std::string name = file.text(place + "/name");
  const std::string kind = file.text(place + "/kind");
  for (const Node& node : topology.nodes) {
    if (node.name == name)
      file.fail_at(place, fmt::format("two nodes are called '{}'", shown(name)));
  }
  for (const auto& [word, value] : kNodeKinds) {
    if (word == kind) return {name, value, 0};
  }
  file.fail_at(place + "/kind", fmt::format("'{}' is no kind of node; use gpu, switch, cpu, "
                                            "nvswitch or nic",
                                            shown(kind)));
}

std::size_t read_end(const JsonFile& file, const std::string& place, const Topology& topology) {
  const std::string name = file.text(place);
  std::vector<std::string> names;
  for (std::size_t i = 0; i < topology.nodes.size(); ++i) {
    if (topology.nodes[i].name == name) return i;
    names.push_back(topology.nodes[i].name);
  }
  file.fail_at(place, fmt::format("no device or node is called '{}'{}", shown(name),
                                  did_you_mean(name, names)));
}

Link read_link(const JsonFile& file, const std::string& place, const Topology& topology) {
  Link link;
  link.a = read_end(file, place + "/from", topology);
  link.b = read_end(file, place + "/to", topology);
  if (link.a == link.b) file.fail_at(place, "a link must join two different nodes");
  link.bytes_per_second = file.positive(place + "/gb_per_s") * 1e9;
  const std::string kind = file.text(place + "/kind");
  const auto found = std::ranges::find(kLinkKinds, kind, &LinkWord::word);
  if (found == kLinkKinds.end()) {
    file.fail_at(place + "/kind", fmt::format("'{}' is no kind of link; use nvlink, pcie, socket "
                                              "or network",
                                              shown(kind)));
  }
  link.kind = found->kind;
  link.latency_seconds = file.has(place + "/latency_us") ? file.number(place + "/latency_us") * 1e-6
                                                         : found->latency_seconds;
  return link;
}

enum class Ways { all, past_gpus };  // past_gpus: a GPU passes nothing on

std::vector<char> reached_nodes(const Topology& topology, std::size_t start, Ways ways) {
  std::vector<char> reached(topology.nodes.size(), 0);
  std::vector<std::size_t> open{start};
  reached[start] = 1;
  while (!open.empty()) {
    const std::size_t node = open.back();
    open.pop_back();
    if (ways == Ways::past_gpus && topology.nodes[node].kind == NodeKind::gpu) continue;
    for (const Link& link : topology.links) {
      if (link.a != node && link.b != node) continue;
      const std::size_t other = link.a == node ? link.b : link.a;
      if (!reached[other]) open.push_back(other);
      reached[other] = 1;
    }
  }
  return reached;
}

void require_connected(const JsonFile& file, const Topology& topology) {
  const auto cpu = std::ranges::find(topology.nodes, NodeKind::cpu, &Node::kind);
  if (cpu == topology.nodes.end()) {
    file.fail_at("/nodes", "no node is of the kind cpu: where would a batch come from?");
  }
  const auto start = static_cast<std::size_t>(cpu - topology.nodes.begin());
  const std::vector<char> reached = reached_nodes(topology, start, Ways::all);
  const std::vector<char> has_way = reached_nodes(topology, start, Ways::past_gpus);
  for (std::size_t i = 0; i < topology.nodes.size(); ++i) {
    const auto touches = [&](const Link& link) { return link.a == i || link.b == i; };
    const std::string place = fmt::format("/nodes/{}", i);
    const std::string name = shown(topology.nodes[i].name);
    if (std::ranges::none_of(topology.links, touches)) {
      file.fail_at(place, fmt::format("'{}' has no link; add one to \"links\"", name));
    }
    if (!reached[i]) {
      file.fail_at(place, fmt::format("no links lead from '{}' to '{}': the parts are disconnected",
                                      shown(cpu->name), name));
    }
    // A switch between GPUs alone need not be reached by a socket.
    const NodeKind kind = topology.nodes[i].kind;
    if (!has_way[i] && (kind == NodeKind::gpu || kind == NodeKind::cpu)) {
      file.fail_at(place, fmt::format("links lead from '{}' to '{}' through other GPUs only, which "
                                      "pass nothing on",
                                      shown(cpu->name), name));
    }
  }
}

DeviceProfile read_device(const JsonFile& file) {
  DeviceProfile device;
  device.name = file.text("/device/name");
  device.flops_per_second = file.positive("/device/tflops") * 1e12;
  device.memory_bytes_per_second = file.positive("/device/memory_gb_per_s") * 1e9;
  device.memory_bytes = file.positive("/device/memory_gb") * 1e9;
  if (file.has("/device/launch_us")) {
    device.launch_seconds = file.number("/device/launch_us") * 1e-6;
  }
  return device;
}

}  // namespace

Topology parse_topology(const std::string& name, const std::string& text) {
  const JsonFile file(name, text, "topology");
  const std::string schema = file.text("/schema");
  if (schema != kSchema) {
    file.fail_at("/schema",
                 fmt::format("expected the schema '{}', found '{}'", kSchema, shown(schema)));
  }
  Topology topology;
  topology.name = file.text("/name");
  topology.source = file.text("/source");
  topology.device = read_device(file);
  topology.host_bytes_per_second = file.positive("/host/gb_per_s") * 1e9;
  topology.host_thread_bytes_per_second = file.positive("/host/thread_gb_per_s") * 1e9;
  if (file.num_elements("/nodes") > kMaxNodes || file.num_elements("/links") > kMaxNodes) {
    file.fail_at("/nodes",
                 fmt::format("a host has at most {} nodes, and as many links", kMaxNodes));
  }
  for (std::size_t i = 0; i < file.num_elements("/nodes"); ++i) {
    topology.nodes.push_back(read_node(file, fmt::format("/nodes/{}", i), topology));
    if (topology.nodes.back().kind == NodeKind::gpu) topology.gpus.push_back(i);
  }
  if (topology.gpus.empty()) file.fail_at("/nodes", "no node is of the kind gpu");
  if (topology.gpus.size() > kMaxGpusPerHost) {
    file.fail_at("/nodes", fmt::format("{} GPUs are more than the {} of a host; write one host, "
                                       "and name a cluster FILE*HOSTS@100gbe",
                                       topology.gpus.size(), kMaxGpusPerHost));
  }
  for (std::size_t i = 0; i < file.num_elements("/links"); ++i) {
    topology.links.push_back(read_link(file, fmt::format("/links/{}", i), topology));
  }
  require_connected(file, topology);
  return topology;
}

}  // namespace lockstep::predict
