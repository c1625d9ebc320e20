// Which topology a published table's "hardware" and "interconnect" mean.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "simulate/predict/topology.h"

namespace lockstep::tools {

// "V100 DGX-1 x2" or "2x V100 DGX-1" without the number: what the 1-device row is looked up by.
std::string without_count(const std::string& hardware);

struct FoundHardware {
  std::optional<predict::Topology> topology;
  std::string problem;  // why there is none
};

// The machine of the GPU that the name holds (known_gpus.h): its preset, or where the interconnect
// (or else the name) says PCIe, or the GPU has no preset, a PCIe server of that generation with its
// figures: the topology is then called "gtx1080ti-pcie3-8 with Tesla V100". "PCIe3 box" without a
// GPU is pcie3-switches-8.
// As many hosts as num_gpus need, full, joined at the speed in the interconnect (network_speed.h).
// "x4" after a machine's name (DGX, server, node, box) counts hosts, of which one that is no DGX or
// HGX may hold fewer GPUs than the preset; after a GPU's name it counts GPUs.
FoundHardware find_hardware(const std::string& hardware, const std::string& interconnect,
                            std::size_t num_gpus);

}  // namespace lockstep::tools
