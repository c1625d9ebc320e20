#include "simulate/predict/topology.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <optional>
#include <regex>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

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

namespace {

// By NVIDIA's naming: GeForce, GTX and TITAN cards, and RTX with a number that ends in 50 to 90
// ("RTX 4090", "RTX 4070 Ti"); an RTX A6000 or RTX 6000 Ada is for workstations.
bool is_consumer_card(const std::string& name) {
  static const std::regex kConsumer(R"(\b(geforce|gtx|titan|rtx *[2-9]0[5-9]0)\b)",
                                    std::regex::icase);
  return std::regex_search(name, kConsumer);
}

}  // namespace

bool Topology::has_consumer_cards_on_pcie() const {
  const auto is_gpu = [&](std::size_t node) { return nodes[node].kind == NodeKind::gpu; };
  const auto is_nvlink = [](const Link& link) { return link.kind == LinkKind::nvlink; };
  return gpus.size() > 1 && std::ranges::all_of(gpus, is_gpu) &&
         std::ranges::none_of(links, is_nvlink) && is_consumer_card(device.name);
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

// The nodes to which links lead from `start`; a GPU passes nothing on.
std::vector<char> reached_nodes(const Topology& topology, std::size_t start) {
  std::vector<char> reached(topology.nodes.size(), 0);
  std::vector<std::size_t> open{start};
  reached[start] = 1;
  while (!open.empty()) {
    const std::size_t node = open.back();
    open.pop_back();
    if (topology.nodes[node].kind == NodeKind::gpu) continue;
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
    fields.fail_at("nodes", "no node is of the kind cpu, from which batches come");
  }
  const auto start = static_cast<std::size_t>(cpu - topology.nodes.begin());
  const std::vector<char> is_reached = reached_nodes(topology, start);
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
  fields.require_only({"schema", "name", "source", "device", "host", "nodes", "links"});
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
  return topology;
}

}  // namespace lockstep::predict
