#include "simulate/predict/topology.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <optional>

#include "engine/core/error.h"
#include "engine/core/files.h"
#include "engine/core/text.h"
#include "simulate/predict/presets.h"

namespace lockstep::predict {
namespace {

constexpr std::size_t kMaxHosts = 4096;
constexpr std::size_t kMaxPorts = 64;
// A 100 Gb/s port carries 12 GB/s of the 12.5: NCCL's src/graph/topo.h.
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

// The nearest preset, however the name is written: "HGX_H100-8" and "hgxh1008".
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

}  // namespace lockstep::predict
