// The machine that a figure was measured on, and the head of every file that holds measurements.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::tools {

// {"cpu", "cores", "memory_bytes", "os", "gpus": [], "version", "build"}; "cores" are those that
// this process may use.
nlohmann::ordered_json host_info();

// "cpu" of the above.
std::string cpu_name();

// Throws Error{Usage} naming the flag that asks for more bytes than the machine has memory. Many
// bytes may not fit an integer, so they are counted in double.
void require_memory(std::string_view flag, double num_bytes);

// {"schema", "date", "command", "host"}. The date is now, "2026-01-31T23:59:59Z".
nlohmann::ordered_json file_head(std::string_view schema, const std::vector<std::string>& command);

}  // namespace lockstep::tools
