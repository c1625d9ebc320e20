#include "tools/grading/judge_answers.h"

#include <exception>

#include "tools/grading/clean_text.h"

namespace lockstep::tools::grading {
namespace {

using lab::json;

std::string text_of(const json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

// What is wrong with one case; empty: nothing.
std::string judge_case(const lab::Check& check, const json& inputs, const json& result) {
  if (!result.is_object()) return "the answer has not the form that the lab asks for";
  if (const std::string to_do = text_of(result, "not_done"); !to_do.empty()) {
    return "to do: " + to_do;
  }
  if (result.contains("threw")) return "threw: " + text_of(result, "threw");
  if (!result.contains("answer")) return "gave no answer";
  try {
    return check.judge(inputs, result.at("answer"));
  } catch (const std::exception&) {
    return "the answer has not the form that the lab asks for";
  }
}

std::string judge_report(const lab::Check& check, const std::vector<json>& cases,
                         const json& report) {
  if (const std::string problem = text_of(report, "problem"); !problem.empty()) return problem;
  const auto answers = report.find("cases");
  if (answers == report.end() || !answers->is_array()) return "gave no answer";
  for (std::size_t i = 0; i < cases.size(); ++i) {
    if (i >= answers->size()) return "gave no answer";
    const std::string wrong = judge_case(check, cases[i], (*answers)[i]);
    if (!wrong.empty()) return wrong;
  }
  return {};
}

}  // namespace

std::string judge_answers(const lab::Check& check, const std::vector<json>& cases,
                          const RunEnd& end, const RunLimits& limits) {
  if (end.how != RunEnd::How::exited) return describe(end, limits);
  const json report = json::parse(end.out, nullptr, false);
  if (report.is_object()) return clean_line(judge_report(check, cases, report));
  if (end.code == 0) return "ended before it gave an answer";
  return "gave no answer: it " + describe(end, limits);
}

}  // namespace lockstep::tools::grading
