// The environment of a process as a value, so that what depends on it is a function of it.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep::launch {

using Environment = std::map<std::string, std::string, std::less<>>;

// This process's own variables; and, under Hydra, which job it belongs to (hydra_job.h).
Environment current_environment();

// The value of a variable; none where it is unset or empty, which counts as unset.
std::optional<std::string> find_variable(const Environment& environment, std::string_view name);

// The variable as a whole number from 0 on; none where it is unset.
// Throws Error{Usage} that names it when it is something else.
std::optional<int> find_number(const Environment& environment, std::string_view name);

}  // namespace lockstep::launch
