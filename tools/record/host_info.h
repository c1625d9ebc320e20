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

// Throws Error{Usage} that names the flag if it asks for more bytes than the machine has memory.
// The number is a double because it may not fit into an integer.
void require_memory(std::string_view flag, double num_bytes);

// {"schema", "date", "command", "host"}. The date is now, "2026-01-31T23:59:59Z".
nlohmann::ordered_json file_head(std::string_view schema, const std::vector<std::string>& command);

}  // namespace lockstep::tools
