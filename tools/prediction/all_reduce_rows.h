// The rows of `lockstep predict --all-reduce`: how long devices that are not here take to sum a
// buffer, in several ways.
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "simulate/predict/topology.h"

namespace lockstep::tools {

// The "rows" of lockstep.predicted-all-reduce/1 (docs/formats.md).
nlohmann::ordered_json predict_all_reduces(const predict::Topology& topology, std::size_t bytes,
                                           const std::vector<std::size_t>& devices);

// The same as a table.
std::string all_reduce_table(const nlohmann::ordered_json& rows);

}  // namespace lockstep::tools
