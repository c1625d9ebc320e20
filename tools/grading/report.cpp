#include "tools/grading/grade.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "tools/text/format.h"
#include "tools/text/html.h"

namespace lockstep::tools::grading {
namespace {

// Removes characters that control a terminal.
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

// before: the check above it, or nullptr.
std::string check_text(const CheckResult& result, const CheckResult* before) {
  const lab::Check& check = *result.check;
  std::string text = fmt::format("  {:>3}/{:<3}  {}{}\n", result.points, check.points, check.name,
                                 check.shown == lab::Shown::hidden ? " (hidden)" : "");
  constexpr std::size_t kColumn = 11;  // below the check's name
  const std::string margin(kColumn, ' ');
  if (!result.reached.empty())
    text += margin + wrap(result.reached, kTerminalColumns, kColumn) + "\n";
  if (result.passed()) return text;
  if (before != nullptr && before->outcome == result.outcome) return text + margin + "as above\n";
  text += margin + wrap(result.outcome, kTerminalColumns, kColumn) + "\n";
  if (result.is_wrong_answer) {
    text += margin + wrap("hint: " + check.hint, kTerminalColumns, kColumn) + "\n";
  }
  return text + indented(result.printed);
}

std::string sandbox_line(const GradeReport& report) {
  return wrap(fmt::format("sandbox: {}", fmt::join(report.sandbox, ", "))) + "\n";
}

// Warns a teacher, who runs what others wrote; a student runs code of his own.
std::string sandbox_warning(const GradeReport& report) {
  if (report.sandbox.size() > 1) return "";
  return "bubblewrap is missing or does not work, so a submission can reach your files\n";
}

int hidden_points(const lab::Lab& lab) {
  int sum = 0;
  for (const lab::Check& check : lab.checks) {
    if (check.shown == lab::Shown::hidden) sum += check.points;
  }
  return sum;
}

std::string lab_text(const GradeReport& report, const Grade& grade) {
  const lab::Lab& lab = *grade.submission.lab;
  std::string text = wrap(fmt::format("lab {}: {}", lab.folder, lab.title)) + "\n\n";
  if (!grade.submission.problem.empty()) {
    text += fmt::format("  {}\n", wrap(grade.submission.problem, kTerminalColumns, 2));
  } else if (!grade.problem.empty()) {
    text += "  it does not compile:\n" + indented(grade.problem) + "\n";
  } else {
    const CheckResult* before = nullptr;
    for (const CheckResult& result : grade.results) {
      text += check_text(result, before);
      before = &result;
    }
  }
  const auto [points, possible_points] = grade.points();
  text += fmt::format("\n{} of {} points", points, possible_points);
  if (!report.has_hidden) {
    text += fmt::format("; {} more are in the teacher's hidden checks", hidden_points(lab));
  }
  return text + "\n";
}

bool has_a_lab_twice(const std::vector<const Grade*>& grades) {
  std::set<const lab::Lab*> labs;
  return std::ranges::any_of(
      grades, [&](const Grade* grade) { return !labs.insert(grade->submission.lab).second; });
}

}  // namespace

Points Student::points() const {
  Points sum;
  for (const Grade* grade : grades) sum += grade->points();
  return sum;
}

std::vector<Student> students_of(const GradeReport& report) {
  // The list is sorted, so a student's submissions stand together.
  const auto add = [](std::vector<Student>& students, const std::string& name, const Grade& grade) {
    if (students.empty() || students.back().name != name) students.push_back({name, {}});
    students.back().grades.push_back(&grade);
  };
  std::vector<Student> by_first_folder;
  for (const Grade& grade : report.grades) {
    const std::string& name = grade.submission.name;
    add(by_first_folder, name.substr(0, name.find('/')), grade);
  }
  std::vector<Student> students;
  for (const Student& student : by_first_folder) {
    const bool is_one = !has_a_lab_twice(student.grades);
    for (const Grade* grade : student.grades) {
      add(students, is_one ? student.name : grade->submission.name, *grade);
    }
  }
  return students;
}

std::string to_text(const GradeReport& report) {
  std::string text;
  for (const Grade& grade : report.grades) text += lab_text(report, grade) + "\n";
  if (report.grades.size() == 1) {
    text.pop_back();
  } else {
    const auto [points, possible_points] = students_of(report).front().points();
    text += fmt::format("total: {} of {} points\n", points, possible_points);
  }
  return text + sandbox_line(report) + (report.has_hidden ? sandbox_warning(report) : "");
}

namespace {

std::string lab_name(const Grade& grade) {
  return grade.submission.lab ? grade.submission.lab->folder : "";
}

enum class Notes { names, with_reasons };

// "not done", "does not compile", or the failed checks.
std::string note_of(const Grade& grade, Notes notes) {
  if (!grade.submission.problem.empty()) return grade.submission.problem;
  if (!grade.problem.empty()) return "does not compile";
  std::vector<std::string> failed;
  std::vector<std::string> not_done;
  for (const CheckResult& result : grade.results) {
    if (result.passed()) continue;
    const std::string& name = result.check->name;
    if (result.is_to_do()) {
      not_done.push_back(name);
    } else {
      failed.push_back(notes == Notes::names ? name : name + ": " + result.outcome);
    }
  }
  if (!not_done.empty() && not_done.size() == grade.results.size()) return "not done";
  std::string text = fmt::format("{}", fmt::join(failed, notes == Notes::names ? ", " : "; "));
  if (!not_done.empty()) {
    text += fmt::format("{}not done: {}", text.empty() ? "" : "; ", fmt::join(not_done, ", "));
  }
  return text;
}

// A line of the table, the CSV file and the page: a submission, or a student's total.
struct Line {
  std::string name;
  std::string lab;
  Points points;
  std::string note;
};

std::vector<Line> lines_of(const GradeReport& report, Notes notes) {
  std::vector<Line> lines;
  for (const Student& student : students_of(report)) {
    for (const Grade* grade : student.grades) {
      lines.push_back(
          {grade->submission.name, lab_name(*grade), grade->points(), note_of(*grade, notes)});
    }
    if (student.grades.size() > 1) {
      lines.push_back({student.name, "total", student.points(), ""});
    }
  }
  return lines;
}

}  // namespace

std::string to_table(const GradeReport& report) {
  const std::vector<Line> lines = lines_of(report, Notes::names);
  std::size_t width = 10;
  for (const Line& line : lines) width = std::max(width, line.name.size());
  std::string text = fmt::format("{:<{}}  {:<22}  {:>7}  {}\n", "submission", width, "lab",
                                 "points", "checks that failed");
  for (const Line& line : lines) {
    text += fmt::format("{:<{}}  {:<22}  {:>3}/{:<3}  ", line.name, width,
                        line.lab.empty() ? "?" : line.lab, line.points.got, line.points.possible);
    // A note that is too long for the rest of the line has lines of its own.
    const bool fits = width + 35 + line.note.size() <= kTerminalColumns;
    text += fits ? line.note + "\n" : "\n    " + wrap(line.note, kTerminalColumns, 4) + "\n";
  }
  return text + fmt::format("\n{} submissions\n", report.grades.size()) + sandbox_line(report) +
         sandbox_warning(report);
}

namespace {

using nlohmann::ordered_json;

ordered_json or_null(const std::string& text) {
  return text.empty() ? ordered_json() : ordered_json(text);
}

ordered_json check_json(const CheckResult& result) {
  const lab::Check& check = *result.check;
  return {{"name", check.name},
          {"shown", check.shown == lab::Shown::hidden ? "hidden" : "visible"},
          {"points", result.points},
          {"possible_points", check.points},
          {"outcome", result.passed() ? "passed" : result.outcome},
          {"reached", or_null(result.reached)},
          {"hint", result.is_wrong_answer ? ordered_json(check.hint) : ordered_json()}};
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

constexpr const char* kPageStyle = R"(
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 75rem; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .25rem .6rem; border-bottom: 1px solid #8884; vertical-align: top; }
td.n { font-variant-numeric: tabular-nums; }
@media (prefers-color-scheme: dark) { body { background: #181818; color: #ddd; } }
)";

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
                                   {"points", grade.points().got},
                                   {"possible_points", grade.points().possible},
                                   {"problem", or_null(grade.problem)},
                                   {"checks", std::move(checks)}});
  }
  for (const Student& student : students_of(report)) {
    json["students"].push_back({{"name", student.name},
                                {"points", student.points().got},
                                {"possible_points", student.points().possible}});
  }
  return json;
}

ordered_json to_gradescope(const GradeReport& report) {
  int score = 0;
  std::string output;
  ordered_json tests = ordered_json::array();
  for (const Grade& grade : report.grades) {
    const std::string prefix = report.grades.size() > 1 ? lab_name(grade) + ": " : "";
    score += grade.points().got;
    if (!grade.problem.empty()) output += prefix + grade.problem;
    for (const CheckResult& result : grade.results) {
      const bool is_hidden = result.check->shown == lab::Shown::hidden;
      const std::string hint = "hint: " + result.check->hint;
      std::string words;
      if (!result.passed() && is_hidden) words = hint;
      if (!result.passed() && !is_hidden) {
        words = result.outcome + (result.is_wrong_answer ? "\n" + hint : "");
      }
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
  for (const Line& line : lines_of(report, Notes::with_reasons)) {
    const auto [points, possible_points] = line.points;
    const double percent = possible_points > 0 ? 100.0 * points / possible_points : 0;
    text += fmt::format("{},{},{},{},{:.0f},{}\n", csv_cell(line.name), csv_cell(line.lab), points,
                        possible_points, percent, csv_cell(line.note));
  }
  return text;
}

std::string to_html(const GradeReport& report) {
  std::string rows;
  for (const Line& line : lines_of(report, Notes::with_reasons)) {
    rows += fmt::format("<tr><td>{}</td><td class=\"n\">{}/{}</td><td>{}</td><td>{}</td></tr>\n",
                        escape_html(line.name), line.points.got, line.points.possible,
                        escape_html(line.lab), escape_html(line.note));
  }
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
      "<title>Grades</title>\n<style>{}</style>\n</head>\n<body>\n<h1>Grades</h1>\n"
      "<p>{} submissions; hidden checks: {}.</p>\n<table>\n<tr><th>submission</th>"
      "<th>points</th><th>lab</th><th>checks that failed</th></tr>\n{}</table>\n</body>\n</html>\n",
      kPageStyle, report.grades.size(), report.has_hidden ? "yes" : "no", rows);
}

}  // namespace lockstep::tools::grading
