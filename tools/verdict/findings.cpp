#include "tools/verdict/findings.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "engine/core/error.h"
#include "tools/report/json_integer.h"

namespace lockstep::tools {

std::string Finding::text() const {
  return fmt::format("{}: step {}, rank {}, parameter {}: {}", check, step, rank, parameter, what);
}

void throw_failure(const RunFindings& findings, double loss) {
  if (std::isfinite(loss) || !findings.failure) return;
  fail(ErrorCode::Numeric, "compare", "{}; then the loss was no longer finite",
       findings.failure->text());
}

nlohmann::json to_json(const Finding& finding) {
  return {{"check", finding.check},
          {"step", finding.step},
          {"rank", finding.rank},
          {"parameter", finding.parameter},
          {"what", finding.what}};
}

Finding read_finding(const nlohmann::json& json) {
  return {json.at("check"), integer<std::size_t>(json.at("step")), integer<int>(json.at("rank")),
          json.at("parameter"), json.at("what")};
}

nlohmann::json findings_json(const RunFindings& findings) {
  nlohmann::json json{{"num_first_steps", findings.num_first_steps},
                      {"first_movement", findings.first_movement},
                      {"movement", findings.movement},
                      {"gradient_checks", nlohmann::json::array()},
                      {"gradient_limit", findings.gradient_limit},
                      {"failure", nullptr},
                      {"exploded", findings.exploded}};
  for (const GradientCheck& check : findings.gradient_checks) {
    json["gradient_checks"].push_back(
        {{"step", check.step}, {"max_relative_error", check.max_relative_error}});
  }
  if (findings.failure) json["failure"] = to_json(*findings.failure);
  return json;
}

RunFindings read_findings(const nlohmann::json& json) {
  RunFindings findings;
  read_integer(json, "num_first_steps", findings.num_first_steps);
  findings.first_movement = json.at("first_movement");
  findings.movement = json.at("movement");
  for (const nlohmann::json& check : json.at("gradient_checks")) {
    const nlohmann::json& error = check.at("max_relative_error");  // JSON has no NaN
    findings.gradient_checks.push_back({integer<std::size_t>(check.at("step")),
                                        error.is_null() ? std::nan("") : error.get<double>()});
  }
  findings.gradient_limit = json.at("gradient_limit");
  if (!json.at("failure").is_null()) findings.failure = read_finding(json.at("failure"));
  findings.exploded = json.at("exploded");
  return findings;
}

}  // namespace lockstep::tools
