#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "tools/grading/grade_text.h"

namespace lockstep::tools::grading {
namespace {

using nlohmann::ordered_json;

const char* name_of(lab::Shown shown) {
  return shown == lab::Shown::hidden ? "hidden" : "visible";
}

ordered_json check_json(const CheckResult& result) {
  const lab::Check& check = *result.check;
  ordered_json json{{"name", check.name},
                    {"shown", name_of(check.shown)},
                    {"points", result.points},
                    {"possible_points", check.points},
                    {"outcome", result.passed() ? "passed" : result.outcome}};
  json["hint"] = result.passed() ? ordered_json() : ordered_json(check.hint);
  return json;
}

}  // namespace

ordered_json to_json(const GradeReport& report) {
  ordered_json json{{"schema", "lockstep.grade/1"},
                    {"hidden_checks", report.has_hidden},
                    {"sandbox", report.sandbox},
                    {"submissions", ordered_json::array()}};
  for (const Grade& grade : report.grades) {
    const lab::Lab* const lab = grade.submission.lab;
    ordered_json submission{
        {"name", grade.submission.name},
        {"lab", lab ? ordered_json(lab->folder) : ordered_json()},
        {"points", grade.points()},
        {"possible_points", grade.possible_points()},
        {"problem", grade.problem.empty() ? ordered_json() : ordered_json(grade.problem)},
        {"checks", ordered_json::array()}};
    for (const CheckResult& result : grade.results) {
      submission["checks"].push_back(check_json(result));
    }
    json["submissions"].push_back(std::move(submission));
  }
  return json;
}

ordered_json to_gradescope(const Grade& grade) {
  ordered_json json{{"score", grade.points()},
                    {"visibility", "visible"},
                    {"stdout_visibility", "hidden"},
                    {"output", grade.problem},
                    {"tests", ordered_json::array()}};
  for (const CheckResult& result : grade.results) {
    const lab::Check& check = *result.check;
    const bool is_hidden = check.shown == lab::Shown::hidden;
    std::string output;
    if (!result.passed()) {
      output = is_hidden ? "hint: " + check.hint : result.outcome + "\nhint: " + check.hint;
    }
    json["tests"].push_back({{"name", check.name},
                             {"score", result.points},
                             {"max_score", check.points},
                             {"status", result.passed() ? "passed" : "failed"},
                             {"output", output},
                             {"visibility", is_hidden ? "after_published" : "visible"}});
  }
  return json;
}

}  // namespace lockstep::tools::grading
