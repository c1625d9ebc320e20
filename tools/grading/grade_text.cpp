#include "tools/grading/grade_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <sstream>

namespace lockstep::tools::grading {
namespace {

// With no letter that commands a terminal.
std::string indented(const std::string& text) {
  std::string result;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    for (char& c : line) {
      if ((static_cast<unsigned char>(c) < ' ' && c != '\t') || c == 0x7f) c = '?';
    }
    result += "    | " + line + "\n";
  }
  return result;
}

void append_check(std::string& text, const CheckResult& result) {
  const lab::Check& check = *result.check;
  const auto out = std::back_inserter(text);
  fmt::format_to(out, "  {:>3}/{:<3}  {}{}\n", result.points, check.points, check.name,
                 check.shown == lab::Shown::hidden ? " (hidden)" : "");
  if (result.passed()) return;
  fmt::format_to(out, "           {}\n", result.outcome);
  if (!result.outcome.starts_with("to do: ")) {
    fmt::format_to(out, "           hint: {}\n", check.hint);
  }
  text += indented(result.printed);
}

std::string sandbox_line(const GradeReport& report) {
  std::string line = fmt::format("sandbox: {}\n", fmt::join(report.sandbox, ", "));
  if (report.sandbox.size() == 1) {
    line +=
        "bubblewrap is not installed, or cannot work here: what a submission does to your files "
        "is not contained\n";
  }
  return line;
}

int hidden_points(const lab::Lab& lab) {
  int sum = 0;
  for (const lab::Check& check : lab.checks) {
    if (check.shown == lab::Shown::hidden) sum += check.points;
  }
  return sum;
}

}  // namespace

std::string to_text(const GradeReport& report, const Grade& grade) {
  std::string text;
  const auto out = std::back_inserter(text);
  if (grade.submission.lab == nullptr) {
    return fmt::format("{}: {}\n", grade.submission.name, grade.problem);
  }
  const lab::Lab& lab = *grade.submission.lab;
  fmt::format_to(out, "lab {}: {}\n\n", lab.folder, lab.title);
  if (!grade.problem.empty()) {
    text += "  it does not compile:\n" + indented(grade.problem) + "\n";
  } else {
    for (const CheckResult& result : grade.results) append_check(text, result);
  }
  fmt::format_to(out, "\n{} of {} points", grade.points(), grade.possible_points());
  if (!report.has_hidden) {
    fmt::format_to(out, "; {} more are for the teacher's hidden checks", hidden_points(lab));
  }
  fmt::format_to(out, "\n{}", sandbox_line(report));
  return text;
}

std::string to_table(const GradeReport& report) {
  std::size_t width = 10;
  for (const Grade& grade : report.grades) width = std::max(width, grade.submission.name.size());
  std::string text = fmt::format("{:<{}}  {:<22}  {:>7}  {}\n", "submission", width, "lab",
                                 "points", "checks that failed");
  for (const Grade& grade : report.grades) {
    std::vector<std::string> failed;
    for (const CheckResult& result : grade.results) {
      if (!result.passed()) failed.push_back(result.check->name);
    }
    std::string note = fmt::format("{}", fmt::join(failed, ", "));
    if (!grade.problem.empty()) note = grade.submission.lab ? "does not compile" : grade.problem;
    fmt::format_to(std::back_inserter(text), "{:<{}}  {:<22}  {:>3}/{:<3}  {}\n",
                   grade.submission.name, width,
                   grade.submission.lab ? grade.submission.lab->folder : "?", grade.points(),
                   grade.possible_points(), note);
  }
  fmt::format_to(std::back_inserter(text), "\n{} submissions\n{}", report.grades.size(),
                 sandbox_line(report));
  return text;
}

}  // namespace lockstep::tools::grading
