// A calibration as a topology's file (docs/prediction.md).
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "simulate/predict/topology.h"

namespace lockstep::tools {

// The topology of num_devices devices of this host's CPU that share its memory, all of whose
// figures follow from what was measured. The links are such that they charge for the engine's own
// all-reduce by threads, at a small and at a large size, what that took.
predict::Topology calibrated_topology(const predict::MeasuredMachine& measured,
                                      std::size_t num_devices);

// As parse_topology() reads it.
nlohmann::ordered_json topology_json(const predict::Topology& topology);

// A curve as the file has it, and as ranks hand it on.
nlohmann::ordered_json curve_json(const predict::Curve& curve);

}  // namespace lockstep::tools
