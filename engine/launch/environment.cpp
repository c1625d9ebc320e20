#include "engine/launch/environment.h"

#include <unistd.h>

#include <charconv>
#include <utility>

#include "engine/core/error.h"
#include "engine/launch/hydra_job.h"

namespace lockstep::launch {

Environment current_environment() {
  Environment environment;
  for (char** entry = environ; entry && *entry; ++entry) {
    const std::string_view text = *entry;
    const std::size_t equals = text.find('=');
    if (equals == std::string_view::npos) continue;
    environment.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  if (!environment.contains(kHydraJobVariable)) {
    if (auto job = find_hydra_job(environment, ::getpid())) {
      environment.emplace(kHydraJobVariable, std::move(*job));
    }
  }
  return environment;
}

std::optional<std::string> find_variable(const Environment& environment, std::string_view name) {
  const auto found = environment.find(name);
  if (found == environment.end() || found->second.empty()) return std::nullopt;
  return found->second;
}

std::optional<int> find_number(const Environment& environment, std::string_view name) {
  const std::optional<std::string> text = find_variable(environment, name);
  if (!text) return std::nullopt;
  int number = -1;
  const char* const end = text->data() + text->size();
  const auto [rest, problem] = std::from_chars(text->data(), end, number);
  require(problem == std::errc{} && rest == end && number >= 0, ErrorCode::Usage, name,
          "expected a whole number from 0 on in this environment variable, found '{}'", *text);
  return number;
}

}  // namespace lockstep::launch
