// Writes a calibration as a topology file (docs/prediction.md).
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "simulate/predict/topology.h"

namespace lockstep::tools {

// The topology of num_devices devices of this host's CPU that share its memory, with all figures
// derived from the measurements. Its links are fitted so that the engine's own all-reduce by
// threads is charged what it took, at a small and at a large size.
predict::Topology calibrated_topology(const predict::MeasuredMachine& measured,
                                      std::size_t num_devices);

// The JSON that parse_topology() reads.
nlohmann::ordered_json topology_json(const predict::Topology& topology);

// A curve as JSON, for the file and between ranks.
nlohmann::ordered_json curve_json(const predict::Curve& curve);

}  // namespace lockstep::tools
