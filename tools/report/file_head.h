// How every JSON file begins that holds measurements.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::tools {

// {"schema", "date", "command", "host"}. The date is now, "2026-01-31T23:59:59Z".
nlohmann::ordered_json file_head(std::string_view schema, const std::vector<std::string>& command);

}  // namespace lockstep::tools
