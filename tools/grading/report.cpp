#include "tools/grading/report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <sstream>

namespace lockstep::tools::grading {
namespace {

// Without letters that command a terminal.
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

std::string check_text(const CheckResult& result) {
  const lab::Check& check = *result.check;
  std::string text = fmt::format("  {:>3}/{:<3}  {}{}\n", result.points, check.points, check.name,
                                 check.shown == lab::Shown::hidden ? " (hidden)" : "");
  if (result.passed()) return text;
  text += fmt::format("           {}\n", result.outcome);
  if (!result.is_to_do()) text += fmt::format("           hint: {}\n", check.hint);
  return text + indented(result.printed);
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

std::string lab_text(const GradeReport& report, const Grade& grade) {
  const lab::Lab& lab = *grade.submission.lab;
  std::string text = fmt::format("lab {}: {}\n\n", lab.folder, lab.title);
  if (!grade.submission.problem.empty()) {
    text += fmt::format("  {}\n", grade.submission.problem);
  } else if (!grade.problem.empty()) {
    text += "  it does not compile:\n" + indented(grade.problem) + "\n";
  } else {
    for (const CheckResult& result : grade.results) text += check_text(result);
  }
  text += fmt::format("\n{} of {} points", grade.points(), grade.possible_points());
  if (!report.has_hidden) {
    text += fmt::format("; {} more are for the teacher's hidden checks", hidden_points(lab));
  }
  return text + "\n";
}

bool has_a_lab_twice(const std::vector<const Grade*>& grades) {
  std::set<const lab::Lab*> labs;
  return std::ranges::any_of(
      grades, [&](const Grade* grade) { return !labs.insert(grade->submission.lab).second; });
}

}  // namespace

int Student::points() const {
  int sum = 0;
  for (const Grade* grade : grades) sum += grade->points();
  return sum;
}

int Student::possible_points() const {
  int sum = 0;
  for (const Grade* grade : grades) sum += grade->possible_points();
  return sum;
}

std::vector<Student> students_of(const GradeReport& report) {
  // The list is sorted: what belongs together stands together.
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

std::string to_text(const GradeReport& report) {
  std::string text;
  for (const Grade& grade : report.grades) text += lab_text(report, grade) + "\n";
  if (report.grades.size() == 1) {
    text.pop_back();
  } else {
    const Student all = students_of(report).front();
    text += fmt::format("total: {} of {} points\n", all.points(), all.possible_points());
  }
  return text + sandbox_line(report);
}

std::string to_table(const GradeReport& report) {
  std::size_t width = 10;
  for (const Grade& grade : report.grades) width = std::max(width, grade.submission.name.size());
  std::string text = fmt::format("{:<{}}  {:<22}  {:>7}  {}\n", "submission", width, "lab",
                                 "points", "checks that failed");
  const auto add = [&](const std::string& name, const std::string& lab, int points, int possible,
                       const std::string& note) {
    text +=
        fmt::format("{:<{}}  {:<22}  {:>3}/{:<3}  {}\n", name, width, lab, points, possible, note);
  };
  for (const Student& student : students_of(report)) {
    for (const Grade* grade : student.grades) {
      const lab::Lab* lab = grade->submission.lab;
      add(grade->submission.name, lab ? lab->folder : "?", grade->points(),
          grade->possible_points(), note_of(*grade, Notes::names));
    }
    if (student.grades.size() > 1) {
      add(student.name, "total", student.points(), student.possible_points(), "");
    }
  }
  return text + fmt::format("\n{} submissions\n", report.grades.size()) + sandbox_line(report);
}

}  // namespace lockstep::tools::grading
