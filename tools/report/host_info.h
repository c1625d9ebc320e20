// The machine a figure was measured on, as the run file names it.
#pragma once

#include <nlohmann/json.hpp>

namespace lockstep::tools {

// {"cpu", "cores", "memory_bytes", "os", "gpus": [], "version", "build"}; "cores" are those that
// this process may use.
nlohmann::ordered_json host_info();

}  // namespace lockstep::tools
