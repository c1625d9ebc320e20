// Describes the machine that was measured on, and writes the head of every file with measurements.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::tools {

// {"cpu", "cores", "memory_bytes", "os", "gpus": [], "version", "build"}; "cores" counts those that
// this process may use.
nlohmann::ordered_json host_info();

// The "cpu" of host_info().
std::string cpu_name();

// {"schema", "date", "command", "host"}. The date is now, "2026-01-31T23:59:59Z".
nlohmann::ordered_json file_head(std::string_view schema, const std::vector<std::string>& command);

}  // namespace lockstep::tools
