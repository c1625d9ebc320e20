#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>

#include "tools/grading/grade_text.h"
#include "tools/page/html_text.h"

namespace lockstep::tools::grading {
namespace {

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

std::string note_of(const Grade& grade) {
  if (!grade.problem.empty()) return grade.submission.lab ? "does not compile" : grade.problem;
  std::string note;
  for (const CheckResult& result : grade.results) {
    if (result.passed()) continue;
    note += (note.empty() ? "" : "; ") + result.check->name + ": " + result.outcome;
  }
  return note;
}

double percent(const Grade& grade) {
  const int possible = grade.possible_points();
  return possible > 0 ? 100.0 * grade.points() / possible : 0;
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

// One lab: a row per submission, a column per check.
std::string lab_table(const lab::Lab& lab, const std::vector<const Grade*>& grades) {
  using page::escape;
  std::string html = fmt::format(
      "<h2>{}: {}</h2>\n<table>\n<tr><th>submission</th>"
      "<th class=\"n\">points</th>",
      escape(lab.folder), escape(lab.title));
  for (const CheckResult& result : grades[0]->results) {
    html += fmt::format("<th>{}</th>", escape(result.check->name));
  }
  html += "</tr>\n";
  for (const Grade* grade : grades) {
    html += fmt::format("<tr><td>{}</td><td class=\"n\">{}/{}</td>", escape(grade->submission.name),
                        grade->points(), grade->possible_points());
    for (const CheckResult& result : grade->results) {
      const std::string why = grade->problem.empty() ? result.outcome : "does not compile";
      html += result.passed() ? "<td class=\"ok\">✓</td>"
                              : fmt::format("<td class=\"no\" title=\"{}\">✗ {}</td>", escape(why),
                                            escape(page::shortened(why, 60)));
    }
    html += "</tr>\n";
  }
  return html + "</table>\n";
}

}  // namespace

std::string to_csv(const GradeReport& report) {
  std::string text = "submission,lab,points,possible_points,percent,note\n";
  for (const Grade& grade : report.grades) {
    fmt::format_to(
        std::back_inserter(text), "{},{},{},{},{:.0f},{}\n", csv_cell(grade.submission.name),
        csv_cell(grade.submission.lab ? grade.submission.lab->folder : ""), grade.points(),
        grade.possible_points(), percent(grade), csv_cell(note_of(grade)));
  }
  return text;
}

std::string to_html(const GradeReport& report) {
  std::map<std::string, std::vector<const Grade*>> by_lab;
  std::string ungraded;
  for (const Grade& grade : report.grades) {
    if (grade.submission.lab != nullptr) {
      by_lab[grade.submission.lab->folder].push_back(&grade);
    } else {
      ungraded += fmt::format("<tr><td>{}</td><td class=\"no\">{}</td></tr>\n",
                              page::escape(grade.submission.name), page::escape(grade.problem));
    }
  }
  std::string html = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
      "<title>Grades</title>\n<style>{}</style>\n</head>\n<body>\n<h1>Grades</h1>\n"
      "<p>{} submissions; hidden checks: {}.</p>\n",
      kPageStyle, report.grades.size(), report.has_hidden ? "yes" : "no");
  for (const auto& [folder, grades] : by_lab) html += lab_table(*grades[0]->submission.lab, grades);
  if (!ungraded.empty()) html += "<h2>Not graded</h2>\n<table>\n" + ungraded + "</table>\n";
  return html + "</body>\n</html>\n";
}

}  // namespace lockstep::tools::grading
