// The machine a figure was measured on, as the run file names it.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace lockstep::tools {

// {"cpu", "cores", "memory_bytes", "os", "gpus": [], "version", "build"}; "cores" are those that
// this process may use.
nlohmann::ordered_json host_info();

// "cpu" of the above.
std::string cpu_name();

// Throws Error{Usage} naming the flag that asks for more bytes than the machine has memory. Many
// bytes may not fit an integer, so they are counted in double.
void require_memory(std::string_view flag, double num_bytes);

}  // namespace lockstep::tools
