#include "tools/verdict/findings_json.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "tools/report/json_integer.h"

namespace lockstep::tools {

nlohmann::json findings_json(const RunFindings& findings) {
  nlohmann::json json{{"num_first_steps", findings.num_first_steps},
                      {"gradient_checks", nlohmann::json::array()},
                      {"gradient_limit", findings.gradient_limit},
                      {"failure", nullptr}};
  for (const GradientCheck& check : findings.gradient_checks) {
    json["gradient_checks"].push_back(
        {{"step", check.step}, {"max_relative_error", check.max_relative_error}});
  }
  if (findings.failure) {
    const Finding& failure = *findings.failure;
    json["failure"] = {{"check", failure.check},
                       {"step", failure.step},
                       {"rank", failure.rank},
                       {"parameter", failure.parameter},
                       {"what", failure.what}};
  }
  return json;
}

RunFindings read_findings(const nlohmann::json& json) {
  RunFindings findings;
  read_integer(json, "num_first_steps", findings.num_first_steps);
  for (const nlohmann::json& check : json.at("gradient_checks")) {
    const nlohmann::json& error = check.at("max_relative_error");  // JSON has no NaN
    findings.gradient_checks.push_back({integer<std::size_t>(check.at("step")),
                                        error.is_null() ? std::nan("") : error.get<double>()});
  }
  findings.gradient_limit = json.at("gradient_limit");
  const nlohmann::json& failure = json.at("failure");
  if (failure.is_null()) return findings;
  findings.failure = {failure.at("check"), integer<std::size_t>(failure.at("step")),
                      integer<int>(failure.at("rank")), failure.at("parameter"),
                      failure.at("what")};
  return findings;
}

}  // namespace lockstep::tools
