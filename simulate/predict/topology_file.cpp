// Reading a topology: docs/prediction.md describes the file.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <utility>

#include "engine/core/json_file.h"
#include "engine/core/text.h"
#include "simulate/predict/measured_file.h"
#include "simulate/predict/topology.h"

namespace lockstep::predict {
namespace {

constexpr std::string_view kSchema = "lockstep.topology/1";
constexpr std::size_t kMaxGpusPerHost = 64;
constexpr std::size_t kMaxNodes = 1024;

constexpr std::array<std::pair<std::string_view, NodeKind>, 6> kNodeKinds = {
    {{"gpu", NodeKind::gpu},
     {"device", NodeKind::gpu},
     {"switch", NodeKind::pcie_switch},
     {"cpu", NodeKind::cpu},
     {"nvswitch", NodeKind::nvswitch},
     {"nic", NodeKind::nic}}};

struct LinkWord {
  std::string_view word;
  LinkKind kind;
};
constexpr std::array<LinkWord, 5> kLinkKinds = {{{"nvlink", LinkKind::nvlink},
                                                 {"pcie", LinkKind::pcie},
                                                 {"socket", LinkKind::socket},
                                                 {"network", LinkKind::network},
                                                 {"memory", LinkKind::memory}}};

// What no link comes near, in either direction.
constexpr double kLeastGigabytes = 1e-6;
constexpr double kMostGigabytes = 1e9;
constexpr double kMostMicroseconds = 1e6;

double read_microseconds(const JsonFields& fields, const char* name) {
  const double microseconds = fields.number(name);
  if (microseconds > kMostMicroseconds) fields.refuse(name, "at most a second (1e6 us)");
  return microseconds;
}

Node read_node(const JsonFields& fields, const Topology& topology) {
  fields.require_only({"name", "kind"});
  const std::string name = fields.text("name");
  const std::string kind = fields.text("kind");
  for (const Node& node : topology.nodes) {
    if (node.name == name) {
      fields.fail_at("", fmt::format("two nodes are called '{}'", shown(name)));
    }
  }
  for (const auto& [word, value] : kNodeKinds) {
    if (word == kind) return {name, value, 0};
  }
  fields.fail_at("kind", fmt::format("'{}' is no kind of node; use gpu, device, switch, cpu, "
                                     "nvswitch or nic",
                                     shown(kind)));
}

std::size_t read_end(const JsonFields& link, const char* which, const Topology& topology) {
  const std::string name = link.text(which);
  std::vector<std::string> names;
  for (std::size_t i = 0; i < topology.nodes.size(); ++i) {
    if (topology.nodes[i].name == name) return i;
    names.push_back(topology.nodes[i].name);
  }
  link.fail_at(which, fmt::format("no device or node is called '{}'{}", shown(name),
                                  did_you_mean(name, names)));
}

Link read_link(const JsonFields& fields, const Topology& topology) {
  fields.require_only({"from", "to", "kind", "gb_per_s", "latency_us"});
  Link link;
  link.a = read_end(fields, "from", topology);
  link.b = read_end(fields, "to", topology);
  if (link.a == link.b) fields.fail_at("", "a link must join two different nodes");
  const double gigabytes = fields.positive("gb_per_s");
  if (gigabytes < kLeastGigabytes || gigabytes > kMostGigabytes) {
    fields.refuse("gb_per_s", "gigabytes a second, from 1e-6 to 1e9");
  }
  link.bytes_per_second = gigabytes * 1e9;
  const std::string kind = fields.text("kind");
  const auto found = std::ranges::find(kLinkKinds, kind, &LinkWord::word);
  if (found == kLinkKinds.end()) {
    fields.fail_at("kind", fmt::format("'{}' is no kind of link; use nvlink, pcie, socket, "
                                       "network or memory",
                                       shown(kind)));
  }
  link.kind = found->kind;
  link.latency_seconds = fields.has("latency_us") ? read_microseconds(fields, "latency_us") * 1e-6
                                                  : usual_latency_seconds(link.kind);
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

void require_connected(const JsonFields& fields, const Topology& topology) {
  const auto cpu = std::ranges::find(topology.nodes, NodeKind::cpu, &Node::kind);
  if (cpu == topology.nodes.end()) {
    fields.fail_at("nodes", "no node is of the kind cpu: where would a batch come from?");
  }
  const auto start = static_cast<std::size_t>(cpu - topology.nodes.begin());
  const std::vector<char> reached = reached_nodes(topology, start, Ways::all);
  const std::vector<char> has_way = reached_nodes(topology, start, Ways::past_gpus);
  for (std::size_t i = 0; i < topology.nodes.size(); ++i) {
    const auto touches = [&](const Link& link) { return link.a == i || link.b == i; };
    const std::string place = fmt::format("nodes[{}]", i);
    const std::string name = shown(topology.nodes[i].name);
    if (std::ranges::none_of(topology.links, touches)) {
      fields.fail_at(place, fmt::format("'{}' has no link; add one to \"links\"", name));
    }
    if (!reached[i]) {
      fields.fail_at(place,
                     fmt::format("no links lead from '{}' to '{}': the parts are disconnected",
                                 shown(cpu->name), name));
    }
    // A switch between GPUs alone need not be reached by a socket.
    const NodeKind kind = topology.nodes[i].kind;
    if (!has_way[i] && (kind == NodeKind::gpu || kind == NodeKind::cpu)) {
      fields.fail_at(place,
                     fmt::format("links lead from '{}' to '{}' through other GPUs only, which "
                                 "pass nothing on",
                                 shown(cpu->name), name));
    }
  }
}

DeviceProfile read_device(const JsonFields& fields) {
  fields.require_only({"name", "tflops", "memory_gb_per_s", "memory_gb", "launch_us"});
  DeviceProfile device;
  device.name = fields.text("name");
  device.flops_per_second = fields.positive("tflops") * 1e12;
  device.memory_bytes_per_second = fields.positive("memory_gb_per_s") * 1e9;
  device.memory_bytes = fields.positive("memory_gb") * 1e9;
  if (fields.has("launch_us")) {
    device.launch_seconds = read_microseconds(fields, "launch_us") * 1e-6;
  }
  return device;
}

}  // namespace

Topology parse_topology(const std::string& name, const std::string& text) {
  const JsonFile file(name, text, "topology");
  const JsonFields fields = file.fields();
  const std::string schema = fields.text("schema");
  if (schema != kSchema) {
    fields.fail_at("schema",
                   fmt::format("expected the schema '{}', found '{}'", kSchema, shown(schema)));
  }
  Topology topology;
  fields.require_only({"schema", "name", "source", "device", "host", "nodes", "links", "measured"});
  topology.name = fields.text("name");
  topology.source = fields.text("source");
  topology.device = read_device(fields.object("device"));
  const JsonFields host = fields.object("host");
  host.require_only({"gb_per_s", "thread_gb_per_s", "source"});
  topology.host_bytes_per_second = host.positive("gb_per_s") * 1e9;
  topology.host_thread_bytes_per_second = host.positive("thread_gb_per_s") * 1e9;
  const std::vector<JsonFields> nodes = fields.objects("nodes");
  const std::vector<JsonFields> links = fields.objects("links");
  if (nodes.size() > kMaxNodes || links.size() > kMaxNodes) {
    fields.fail_at("nodes",
                   fmt::format("a host has at most {} nodes, and as many links", kMaxNodes));
  }
  for (const JsonFields& node : nodes) {
    topology.nodes.push_back(read_node(node, topology));
    if (topology.nodes.back().kind != NodeKind::gpu) continue;
    topology.gpus.push_back(topology.nodes.size() - 1);
  }
  if (topology.gpus.empty()) fields.fail_at("nodes", "no node is of the kind gpu");
  if (topology.gpus.size() > kMaxGpusPerHost) {
    fields.fail_at("nodes", fmt::format("{} GPUs are more than the {} of a host; write one host, "
                                        "and name a cluster FILE*HOSTS@100gbe",
                                        topology.gpus.size(), kMaxGpusPerHost));
  }
  for (const JsonFields& link : links) topology.links.push_back(read_link(link, topology));
  require_connected(fields, topology);
  if (fields.has("measured")) {
    topology.device.measured = read_measured(fields.object("measured"), topology);
  }
  return topology;
}

}  // namespace lockstep::predict
