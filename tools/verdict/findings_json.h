// Findings as JSON, on their way from ranks that are processes to `compare`.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "tools/verdict/findings.h"

namespace lockstep::tools {

// All of them but the weights of the first steps, which want a file of their own, and memory.
nlohmann::json findings_json(const RunFindings& findings);

// The reverse. Throws nlohmann's error for anything else.
RunFindings read_findings(const nlohmann::json& json);

}  // namespace lockstep::tools
