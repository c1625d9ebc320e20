#include "simulate/predict/topology.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "engine/core/error.h"
#include "engine/core/files.h"
#include "engine/core/json_file.h"
#include "engine/core/text.h"

namespace lockstep::predict {

namespace {

constexpr std::size_t kMaxHosts = 4096;
constexpr std::size_t kMaxPorts = 64;
// A 100 Gb/s port carries 12 of its 12.5 GB/s: NCCL's src/graph/topo.h.
constexpr double kNetworkEfficiency = 12.0 / 12.5;

template <typename Number>
std::optional<Number> read_number(std::string_view text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

struct ClusterName {
  std::string host;
  std::size_t num_hosts = 1;
  std::size_t ports = 1;
  double gigabits_per_second = 0;
};

// The parts of "NAME*4@8x100gbe"; empty for a name without '*'.
std::optional<ClusterName> split_cluster_name(const std::string& name) {
  const std::size_t star = name.rfind('*');
  if (star == std::string::npos) return std::nullopt;
  const std::size_t at = name.find('@', star);
  std::string speed = at == std::string::npos ? "" : name.substr(at + 1);
  ClusterName cluster;
  cluster.host = name.substr(0, star);
  if (const std::size_t x = speed.find('x'); x != std::string::npos) {
    cluster.ports = read_number<std::size_t>(speed.substr(0, x)).value_or(0);
    speed.erase(0, x + 1);
  }
  const bool has_unit = speed.ends_with("gbe");
  if (has_unit) speed.resize(speed.size() - 3);
  const std::string hosts = name.substr(star + 1, at == std::string::npos ? at : at - star - 1);
  cluster.num_hosts = read_number<std::size_t>(hosts).value_or(0);
  cluster.gigabits_per_second = read_number<double>(speed).value_or(0);
  const bool is_good = has_unit && cluster.num_hosts >= 1 && cluster.num_hosts <= kMaxHosts &&
                       cluster.ports >= 1 && cluster.ports <= kMaxPorts &&
                       std::isfinite(cluster.gigabits_per_second) &&
                       cluster.gigabits_per_second > 0;
  require(
      is_good, ErrorCode::Usage, "topology",
      "'{}' is not NAME*HOSTS@SPEED, such as dgx1-v100*4@100gbe, with 1 to {} hosts and a speed "
      "in Gb/s",
      name, kMaxHosts);
  return cluster;
}

// The nearest preset, however the name is spelled: "HGX_H100-8" and "hgxh1008".
std::string suggestion(const std::string& name) {
  const auto letters = [](const std::string& text) {
    std::string result;
    for (const char c : text) {
      const auto byte = static_cast<unsigned char>(c);
      if (std::isalnum(byte) != 0) result += static_cast<char>(std::tolower(byte));
    }
    return result;
  };
  const std::string wanted = letters(name);
  for (const std::string& preset : preset_names()) {
    const bool is_near = wanted.size() >= 4 && letters(preset).starts_with(wanted);
    if (is_near) return did_you_mean(preset, std::vector{preset});
  }
  return did_you_mean(name, preset_names());
}

}  // namespace

double usual_latency_seconds(LinkKind kind) {
  switch (kind) {
    case LinkKind::nvlink:
      return 0.6e-6;
    case LinkKind::network:
      return 2.7e-6;
    case LinkKind::memory:
      return 0;
    default:
      return 1e-6;
  }
}

bool Topology::has_peer_access(std::size_t a, std::size_t b) const {
  if (peer_access == PeerAccess::all || a == b) return true;
  if (nodes[a].kind != NodeKind::gpu || nodes[b].kind != NodeKind::gpu) return true;
  if (nodes[a].host != nodes[b].host) return true;
  if (std::ranges::find(peers, std::pair{a, b}) != peers.end()) return true;
  // A switch of NVLinks joins all that hang on one.
  std::vector<std::size_t> beside;
  for (const Link& link : links) {
    if (link.kind != LinkKind::nvlink) continue;
    for (const auto& [from, to] : {std::pair{link.a, link.b}, std::pair{link.b, link.a}}) {
      if (from == a && to == b) return true;
      if (from == a && nodes[to].kind == NodeKind::nvswitch) beside.push_back(to);
    }
  }
  return std::ranges::any_of(links, [&](const Link& link) {
    const std::size_t other = link.a == b ? link.b : link.a;
    return (link.a == b || link.b == b) && std::ranges::find(beside, other) != beside.end();
  });
}

double Topology::network_bytes_per_second() const {
  double total = 0;
  for (const Link& link : links) {
    const bool is_port = link.kind == LinkKind::network && nodes[link.a].host == 0 &&
                         nodes[link.a].kind == NodeKind::nic;
    if (is_port) total += link.bytes_per_second;
  }
  return total;
}

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const Preset& preset : presets()) names.emplace_back(preset.name);
  return names;
}

Topology make_cluster(const Topology& host, std::size_t num_hosts, double gigabits_per_second,
                      std::size_t ports) {
  Topology cluster = host;
  cluster.name = fmt::format("{}*{}@{}{:g}gbe", host.name, num_hosts,
                             ports > 1 ? fmt::format("{}x", ports) : "", gigabits_per_second);
  cluster.num_hosts = num_hosts;
  cluster.nodes.clear();
  cluster.links.clear();
  cluster.gpus.clear();
  cluster.peers.clear();
  cluster.nodes.push_back({"network", NodeKind::network, 0});
  for (std::size_t h = 0; h < num_hosts; ++h) {
    const std::size_t first = cluster.nodes.size();
    std::vector<std::size_t> sockets;
    for (std::size_t i = 0; i < host.nodes.size(); ++i) {
      const Node& node = host.nodes[i];
      if (node.kind == NodeKind::cpu) sockets.push_back(cluster.nodes.size());
      if (std::ranges::find(host.gpus, i) != host.gpus.end()) cluster.gpus.push_back(first + i);
      cluster.nodes.push_back({fmt::format("host{}.{}", h, node.name), node.kind, h});
    }
    for (const auto& [a, b] : host.peers) cluster.peers.emplace_back(first + a, first + b);
    for (Link link : host.links) {
      link.a += first;
      link.b += first;
      cluster.links.push_back(link);
    }
    const double port = gigabits_per_second / 8 * 1e9 * kNetworkEfficiency;
    for (std::size_t p = 0; p < ports; ++p) {
      const std::size_t nic = cluster.nodes.size();
      cluster.nodes.push_back({fmt::format("host{}.port{}", h, p), NodeKind::nic, h});
      cluster.links.push_back({nic, sockets[p % sockets.size()], LinkKind::pcie,
                               std::max(port, 12e9), usual_latency_seconds(LinkKind::pcie)});
      cluster.links.push_back(
          {nic, 0, LinkKind::network, port, usual_latency_seconds(LinkKind::network)});
    }
  }
  return cluster;
}

Topology find_topology(const std::string& name) {
  if (const auto cluster = split_cluster_name(name)) {
    const Topology host = find_topology(cluster->host);
    require(host.num_hosts == 1, ErrorCode::Usage, "topology", "'{}' is a cluster of clusters",
            name);
    return make_cluster(host, cluster->num_hosts, cluster->gigabits_per_second, cluster->ports);
  }
  // NVIDIA's servers are built around boards that others sell too.
  if (name == "dgx-h100" || name == "dgx-h200") return find_topology("hgx" + name.substr(3) + "-8");
  for (const Preset& preset : presets()) {
    if (preset.name == name)
      return parse_topology(std::string(preset.name), std::string(preset.text));
  }
  std::error_code ignored;
  const bool is_file = name.ends_with(".json") || std::filesystem::exists(name, ignored);
  require(is_file, ErrorCode::Usage, "topology",
          "'{}' is neither a file nor a preset{}; the presets are {}; a cluster is NAME*4@100gbe",
          name, suggestion(name), fmt::join(preset_names(), ", "));
  return parse_topology(name, read_text_file(name, "topology"));
}

// Reads a topology; docs/prediction.md describes the file.

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

constexpr std::array<std::pair<std::string_view, LinkKind>, 5> kLinkKinds = {
    {{"nvlink", LinkKind::nvlink},
     {"pcie", LinkKind::pcie},
     {"socket", LinkKind::socket},
     {"network", LinkKind::network},
     {"memory", LinkKind::memory}}};

// The value that "kind" names in a list of words.
template <typename Words>
auto read_kind(const JsonFields& fields, const Words& words) {
  const std::string kind = fields.text("kind");
  std::vector<std::string_view> known;
  for (const auto& [word, value] : words) {
    if (word == kind) return value;
    known.push_back(word);
  }
  fields.fail_at(
      "kind", fmt::format("'{}' is unknown; use one of {}", shown(kind), fmt::join(known, ", ")));
}

// No real link comes near these limits.
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
  for (const Node& node : topology.nodes) {
    if (node.name == name) {
      fields.fail_at("", fmt::format("two nodes are called '{}'", shown(name)));
    }
  }
  return {name, read_kind(fields, kNodeKinds), 0};
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
  link.kind = read_kind(fields, kLinkKinds);
  link.latency_seconds = fields.has("latency_us") ? read_microseconds(fields, "latency_us") * 1e-6
                                                  : usual_latency_seconds(link.kind);
  return link;
}

// The nodes to which these links lead from `start`; other GPUs pass nothing on.
template <typename IsTaken>
std::vector<char> reached_nodes(const Topology& topology, std::size_t start,
                                const IsTaken& is_taken) {
  std::vector<char> reached(topology.nodes.size(), 0);
  std::vector<std::size_t> open{start};
  reached[start] = 1;
  for (std::size_t i = 0; i < open.size(); ++i) {
    const std::size_t node = open[i];
    if (node != start && topology.nodes[node].kind == NodeKind::gpu) continue;
    for (const Link& link : topology.links) {
      if (!is_taken(link) || (link.a != node && link.b != node)) continue;
      const std::size_t other = link.a == node ? link.b : link.a;
      if (!std::exchange(reached[other], 1)) open.push_back(other);
    }
  }
  return reached;
}

void require_connected(const JsonFields& fields, const Topology& topology) {
  const auto cpu = std::ranges::find(topology.nodes, NodeKind::cpu, &Node::kind);
  if (cpu == topology.nodes.end()) {
    fields.fail_at("nodes", "no node is of the kind cpu, from which batches come");
  }
  const auto start = static_cast<std::size_t>(cpu - topology.nodes.begin());
  const std::vector<char> is_reached =
      reached_nodes(topology, start, [](const Link&) { return true; });
  for (std::size_t i = 0; i < topology.nodes.size(); ++i) {
    const auto touches = [&](const Link& link) { return link.a == i || link.b == i; };
    const std::string place = fmt::format("nodes[{}]", i);
    const std::string name = shown(topology.nodes[i].name);
    if (std::ranges::none_of(topology.links, touches)) {
      fields.fail_at(place, fmt::format("'{}' has no link; add one to \"links\"", name));
    }
    // A switch that only connects GPUs need not be reached by a socket.
    const NodeKind kind = topology.nodes[i].kind;
    if (!is_reached[i] && (kind == NodeKind::gpu || kind == NodeKind::cpu)) {
      fields.fail_at(place, fmt::format("no links lead from '{}' to '{}' except perhaps through "
                                        "other GPUs, which don't forward messages",
                                        shown(cpu->name), name));
    }
  }
}

// A way from a to b over NVLink, PCIe or sockets, and through no third GPU.
bool are_joined(const Topology& topology, std::size_t a, std::size_t b) {
  return reached_nodes(topology, a, [](const Link& link) {
    return link.kind != LinkKind::network && link.kind != LinkKind::memory;
  })[b];
}

// "peer_access": true, false, or a list of pairs such as ["gpu0", "gpu1"].
void read_peer_access(const JsonFields& fields, Topology& topology) {
  constexpr const char* kExpected = "true, false, or pairs of GPUs such as [[\"gpu0\", \"gpu1\"]]";
  const nlohmann::json* const value = fields.find("peer_access");
  if (value == nullptr) return;
  topology.peers.clear();
  topology.peer_access = *value == true ? PeerAccess::all : PeerAccess::listed;
  if (value->is_boolean()) return;
  if (!value->is_array()) fields.refuse("peer_access", kExpected);
  for (const nlohmann::json& pair : *value) {
    const bool is_pair =
        pair.is_array() && pair.size() == 2 && pair[0].is_string() && pair[1].is_string();
    if (!is_pair) fields.refuse("peer_access", kExpected);
    std::vector<std::size_t> ends;
    for (const std::string& name : {pair[0].get<std::string>(), pair[1].get<std::string>()}) {
      const auto node = std::ranges::find(topology.nodes, name, &Node::name);
      if (node == topology.nodes.end() || node->kind != NodeKind::gpu) {
        fields.fail_at("peer_access", fmt::format("no GPU is called '{}'", shown(name)));
      }
      ends.push_back(static_cast<std::size_t>(node - topology.nodes.begin()));
    }
    if (ends[0] == ends[1] || !are_joined(topology, ends[0], ends[1])) {
      fields.fail_at(
          "peer_access",
          fmt::format("'{}' and '{}' have peer access but no link: no way of nvlink, "
                      "pcie and socket leads from one to the other",
                      shown(pair[0].get<std::string>()), shown(pair[1].get<std::string>())));
    }
    topology.peers.emplace_back(ends[0], ends[1]);
    topology.peers.emplace_back(ends[1], ends[0]);
  }
}

void read_host(const JsonFields& host, Topology& topology) {
  host.require_only({"gb_per_s", "thread_gb_per_s", "staging", "source"});
  topology.host_bytes_per_second = host.positive("gb_per_s") * 1e9;
  topology.host_thread_bytes_per_second = host.positive("thread_gb_per_s") * 1e9;
  if (!host.has("staging")) return;
  if (topology.peer_access == PeerAccess::all) {
    host.fail_at("staging",
                 "all GPUs have peer access, so no message is staged in host memory; "
                 "say \"peer_access\": false, or leave it out");
  }
  const JsonFields staging = host.object("staging");
  staging.require_only({"gb_per_s", "gpu_gb_per_s", "socket_gb_per_s"});
  const auto read = [&](const char* name) {
    if (!staging.has(name)) return 0.0;
    const double gigabytes = staging.positive(name);
    if (gigabytes < kLeastGigabytes || gigabytes > kMostGigabytes) {
      staging.refuse(name, "gigabytes a second, from 1e-6 to 1e9");
    }
    return gigabytes * 1e9;
  };
  topology.staging = {read("gb_per_s"), read("gpu_gb_per_s"), read("socket_gb_per_s")};
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

// The preset that the file begins with, and whose fields it keeps but for those that it has itself.
Topology find_like(const JsonFields& fields) {
  const std::string like = fields.text("like");
  const auto preset = std::ranges::find(presets(), like, &Preset::name);
  if (preset == presets().end()) {
    fields.fail_at("like", fmt::format("'{}' is no preset{}", shown(like), suggestion(like)));
  }
  return parse_topology(like, std::string(preset->text));
}

void read_graph(const JsonFields& fields, Topology& topology) {
  topology.nodes.clear();
  topology.links.clear();
  topology.gpus.clear();
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
  fields.require_only(
      {"schema", "name", "like", "source", "device", "host", "peer_access", "nodes", "links"});
  const bool is_like = fields.has("like");
  Topology topology = is_like ? find_like(fields) : Topology{};
  topology.name = fields.text("name");
  topology.source = fields.text("source");
  const auto has = [&](const char* field) { return !is_like || fields.has(field); };
  if (has("device")) topology.device = read_device(fields.object("device"));
  if (has("nodes") || has("links")) read_graph(fields, topology);
  read_peer_access(fields, topology);
  if (has("host")) read_host(fields.object("host"), topology);
  return topology;
}

}  // namespace lockstep::predict
