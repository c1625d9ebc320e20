// Which topology a published table's "hardware" and "interconnect" mean.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "engine/predict/topology.h"

namespace lockstep::tools {

// "V100 DGX-1 x2" without its number of machines: what the 1-device row is looked up by.
std::string without_host_count(const std::string& hardware);

// The preset of the GPU that the name holds; where the interconnect says PCIe and the preset has
// NVLink, the GPU in a PCIe server. Without a known GPU, the preset with that interconnect. More
// GPUs than the preset has, or "x2": a cluster, at the Gb/s in the interconnect.
// Empty when neither name says enough.
std::optional<predict::Topology> find_hardware(const std::string& hardware,
                                               const std::string& interconnect,
                                               std::size_t num_gpus);

}  // namespace lockstep::tools
