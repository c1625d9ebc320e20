#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>

#include "tools/grading/report.h"
#include "tools/page/html_text.h"

namespace lockstep::tools::grading {
namespace {

using nlohmann::ordered_json;
using page::escape;

ordered_json or_null(const std::string& text) {
  return text.empty() ? ordered_json() : ordered_json(text);
}

std::string lab_name(const Grade& grade) {
  return grade.submission.lab ? grade.submission.lab->folder : "";
}

ordered_json check_json(const CheckResult& result) {
  const lab::Check& check = *result.check;
  return {{"name", check.name},
          {"shown", check.shown == lab::Shown::hidden ? "hidden" : "visible"},
          {"points", result.points},
          {"possible_points", check.points},
          {"outcome", result.passed() ? "passed" : result.outcome},
          {"hint", result.passed() ? ordered_json() : ordered_json(check.hint)}};
}

std::string csv_cell(std::string text) {
  if (!text.empty() && std::string("=+-@\t\r").find(text[0]) != std::string::npos) {
    text.insert(0, "'");
  }
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"') quoted += '"';
    quoted += c == '\n' || c == '\r' ? ' ' : c;
  }
  return quoted + "\"";
}

std::string csv_line(const std::string& name, const std::string& lab, int points, int possible,
                     const std::string& note) {
  const double percent = possible > 0 ? 100.0 * points / possible : 0;
  return fmt::format("{},{},{},{},{:.0f},{}\n", csv_cell(name), csv_cell(lab), points, possible,
                     percent, csv_cell(note));
}

constexpr const char* kPageStyle = R"(
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 75rem; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; margin: 1rem 0 2rem; }
th, td { text-align: left; padding: .25rem .6rem; border-bottom: 1px solid #8884; vertical-align: top; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; }
td.ok { color: #007a5a; } td.no { color: #c44e00; }
@media (prefers-color-scheme: dark) { body { background: #181818; color: #ddd; }
td.ok { color: #3fc79a; } td.no { color: #f0914d; } }
)";

std::string name_and_points(const std::string& name, int points, int possible) {
  return fmt::format("<tr><td>{}</td><td class=\"n\">{}/{}</td>", escape(name), points, possible);
}

std::string check_cell(const Grade& grade, const CheckResult& result) {
  if (result.passed()) return "<td class=\"ok\">✓</td>";
  std::string why = result.is_to_do() ? "not done" : result.outcome;
  if (!grade.problem.empty()) why = note_of(grade, Notes::names);
  return fmt::format("<td class=\"no\" title=\"{}\">✗ {}</td>", escape(why),
                     escape(page::shortened(why, 60)));
}

// A row per submission of the lab, a column per check.
std::string lab_table(const lab::Lab& lab, const std::vector<const Grade*>& grades) {
  std::string html =
      fmt::format("<h2>{}: {}</h2>\n<table>\n<tr><th>submission</th><th class=\"n\">points</th>",
                  escape(lab.folder), escape(lab.title));
  for (const CheckResult& result : grades[0]->results) {
    html += fmt::format("<th>{}</th>", escape(result.check->name));
  }
  html += "</tr>\n";
  for (const Grade* grade : grades) {
    html += name_and_points(grade->submission.name, grade->points(), grade->possible_points());
    for (const CheckResult& result : grade->results) html += check_cell(*grade, result);
    html += "</tr>\n";
  }
  return html + "</table>\n";
}

// A row per student; empty where everybody handed in one lab.
std::string totals_table(const GradeReport& report) {
  const std::vector<Student> students = students_of(report);
  if (students.size() == report.grades.size()) return {};
  std::string html =
      "<h2>Totals</h2>\n<table>\n<tr><th>student</th><th class=\"n\">points</th></tr>\n";
  for (const Student& student : students) {
    html += name_and_points(student.name, student.points(), student.possible_points()) + "</tr>\n";
  }
  return html + "</table>\n";
}

}  // namespace

ordered_json to_json(const GradeReport& report) {
  ordered_json json{{"schema", "lockstep.grade/1"},
                    {"hidden_checks", report.has_hidden},
                    {"sandbox", report.sandbox},
                    {"submissions", ordered_json::array()},
                    {"students", ordered_json::array()}};
  for (const Grade& grade : report.grades) {
    ordered_json checks = ordered_json::array();
    for (const CheckResult& result : grade.results) checks.push_back(check_json(result));
    json["submissions"].push_back({{"name", grade.submission.name},
                                   {"lab", or_null(lab_name(grade))},
                                   {"points", grade.points()},
                                   {"possible_points", grade.possible_points()},
                                   {"problem", or_null(grade.problem)},
                                   {"checks", std::move(checks)}});
  }
  for (const Student& student : students_of(report)) {
    json["students"].push_back({{"name", student.name},
                                {"points", student.points()},
                                {"possible_points", student.possible_points()}});
  }
  return json;
}

ordered_json to_gradescope(const GradeReport& report) {
  int score = 0;
  std::string output;
  ordered_json tests = ordered_json::array();
  for (const Grade& grade : report.grades) {
    const std::string prefix = report.grades.size() > 1 ? lab_name(grade) + ": " : "";
    score += grade.points();
    if (!grade.problem.empty()) output += prefix + grade.problem;
    for (const CheckResult& result : grade.results) {
      const bool is_hidden = result.check->shown == lab::Shown::hidden;
      const std::string hint = "hint: " + result.check->hint;
      std::string words;
      if (!result.passed()) words = is_hidden ? hint : result.outcome + "\n" + hint;
      tests.push_back({{"name", prefix + result.check->name},
                       {"score", result.points},
                       {"max_score", result.check->points},
                       {"status", result.passed() ? "passed" : "failed"},
                       {"output", words},
                       {"visibility", is_hidden ? "after_published" : "visible"}});
    }
  }
  return {{"score", score},
          {"visibility", "visible"},
          {"stdout_visibility", "hidden"},
          {"output", output},
          {"tests", std::move(tests)}};
}

std::string to_csv(const GradeReport& report) {
  std::string text = "submission,lab,points,possible_points,percent,note\n";
  for (const Student& student : students_of(report)) {
    for (const Grade* grade : student.grades) {
      text += csv_line(grade->submission.name, lab_name(*grade), grade->points(),
                       grade->possible_points(), note_of(*grade, Notes::with_reasons));
    }
    if (student.grades.size() > 1) {
      text += csv_line(student.name, "total", student.points(), student.possible_points(), "");
    }
  }
  return text;
}

std::string to_html(const GradeReport& report) {
  std::map<std::string, std::vector<const Grade*>> by_lab;
  std::string ungraded;
  for (const Grade& grade : report.grades) {
    if (grade.submission.lab != nullptr) {
      by_lab[lab_name(grade)].push_back(&grade);
    } else {
      ungraded += fmt::format("<tr><td>{}</td><td class=\"no\">{}</td></tr>\n",
                              escape(grade.submission.name), escape(grade.problem));
    }
  }
  std::string html = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
      "<title>Grades</title>\n<style>{}</style>\n</head>\n<body>\n<h1>Grades</h1>\n"
      "<p>{} submissions; hidden checks: {}.</p>\n{}",
      kPageStyle, report.grades.size(), report.has_hidden ? "yes" : "no", totals_table(report));
  for (const auto& [folder, grades] : by_lab) html += lab_table(*grades[0]->submission.lab, grades);
  if (!ungraded.empty()) html += "<h2>Not graded</h2>\n<table>\n" + ungraded + "</table>\n";
  return html + "</body>\n</html>\n";
}

}  // namespace lockstep::tools::grading
