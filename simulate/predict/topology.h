// A machine, or a cluster of machines, as a value: its devices, and the links between them.
// docs/prediction.md describes its JSON file; the presets are such files.
//
// A link is full duplex: it carries its bytes per second in each direction, for all who share it.
// So a PCIe switch is a node whose only link upwards is shared by everything below it, and two
// sockets are two nodes with a QPI link between them.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep::predict {

enum class NodeKind { gpu, pcie_switch, cpu, nvswitch, nic, network };
enum class LinkKind { nvlink, pcie, socket, network, memory };

// For files that give no latency: the time of a step over such a link by NCCL's LL protocol
// (src/graph/tuning.cc); between sockets the same as PCIe; zero for memory.
double usual_latency_seconds(LinkKind kind);

struct Node {
  std::string name;
  NodeKind kind = NodeKind::gpu;
  std::size_t host = 0;
};

struct Link {
  std::size_t a = 0;  // indices of nodes
  std::size_t b = 0;
  LinkKind kind = LinkKind::pcie;
  double bytes_per_second = 0;  // each direction's
  double latency_seconds = 0;
};

// Devices of one kind differ: the standard deviation of their speed. The V100s of a cluster differ
// by about 8 % from the fastest to the slowest hundredth (Sinha et al., "Not All GPUs Are Created
// Equal", SC 2022), which lie 4.65 standard deviations apart. A step waits for the slowest of n.
inline constexpr double kDeviceDeviation = 0.08 / 4.65;

// The topology's kind of device.
struct DeviceProfile {
  std::string name;
  double flops_per_second = 0;         // peak, float32 without tensor cores
  double memory_bytes_per_second = 0;  // peak
  double memory_bytes = 0;
  double launch_seconds = 5e-6;  // time of one kernel's launch
};

// The way between GPUs that cannot read each other's memory: the sender copies into its socket's
// memory, from where the receiver copies. In bytes per second; 0: the links alone bound it.
struct Staging {
  double bytes_per_second = 0;         // all messages together that leave a socket's GPUs so
  double gpu_bytes_per_second = 0;     // one GPU's, in each direction
  double socket_bytes_per_second = 0;  // those that cross to another socket, in each direction
};

enum class PeerAccess { all, listed };

struct Topology {
  std::string name;
  std::string source;
  DeviceProfile device;
  // Memory traffic of host code that adds gradients and updates weights: with all cores, and with
  // one.
  double host_bytes_per_second = 0;
  double host_thread_bytes_per_second = 0;
  std::vector<Node> nodes;
  std::vector<Link> links;
  std::vector<std::size_t> gpus;  // nodes, in the order in which runs use them
  std::size_t num_hosts = 1;
  // Between GPUs of one host. NVLink gives peer access to the two GPUs that it joins; otherwise
  // every pair has it over PCIe, or only those of the list (nodes, both orders).
  PeerAccess peer_access = PeerAccess::all;
  std::vector<std::pair<std::size_t, std::size_t>> peers;
  Staging staging;

  // False if messages between the two nodes, GPUs of one host, pass through host memory.
  bool has_peer_access(std::size_t a, std::size_t b) const;
  std::size_t gpus_per_host() const { return gpus.size() / num_hosts; }
  // The bandwidth of all network ports of a host together. 0: it has none.
  double network_bytes_per_second() const;
};

// Names of the presets, in alphabetical order.
std::vector<std::string> preset_names();

// A preset ("dgx1-v100"), a file (any existing name, or one that ends in ".json"), or a cluster of
// either: NAME*HOSTS@SPEED, where SPEED is 10gbe, 25gbe, 100gbe, 400gbe, another number of Gb/s, or
// a number of ports per host times that: "hgx-h100-8*16@8x400gbe".
// Throws Error{Usage} for a name that is none of these, Error{Io} that names file and line for a
// file with unknown devices, missing links, disconnected parts or a bandwidth of zero.
Topology find_topology(const std::string& name);

// The same machine `num_hosts` times, joined by a switch: every host has `ports` network ports,
// spread over its sockets. A 100 Gb/s port carries 12 GB/s, as in NCCL's src/graph/topo.h.
Topology make_cluster(const Topology& host, std::size_t num_hosts, double gigabits_per_second,
                      std::size_t ports);

// text: a file's content; name: its name in errors.
Topology parse_topology(const std::string& name, const std::string& text);

// The built-in topologies, in alphabetical order: the files of simulate/predict/topologies.
struct Preset {
  std::string_view name;
  std::string_view text;
};
std::span<const Preset> presets();

}  // namespace lockstep::predict
