// The network's speed in a published table's "interconnect".
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace lockstep::tools {

struct NetworkSpeed {
  double gigabits_per_second = 0;  // of a port
  std::size_t ports = 1;           // of a host
};

// "100GbE", "2.5 GbE", "25 Gb/s", "10Gbps", "100G", and in bytes "12.5 GB/s"; with ports
// "8x400GbE"; anywhere in the text ("NVLink2 + 100GbE"). A figure in bytes beside the name of a
// link within a host ("NVLink 300 GB/s") is that link's. Empty: none, or more than one port number
// allows (1 to 64 ports of at most 100,000 Gb/s).
std::optional<NetworkSpeed> find_network_speed(std::string_view interconnect);

}  // namespace lockstep::tools
