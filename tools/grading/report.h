// Shows grades: to people, and to programs that read them.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "tools/grading/grade.h"

namespace lockstep::tools::grading {

struct GradeReport {
  std::vector<Grade> grades;
  std::vector<std::string> sandbox;  // what held the submissions: "limits", "bubblewrap"
  bool has_hidden = false;           // whether hidden checks were run
};

// All that one student handed in: the submissions whose names begin with the same folder. Where a
// lab is in there twice, that folder holds several students, and each submission's is one.
struct Student {
  std::string name;
  std::vector<const Grade*> grades;

  int points() const;
  int possible_points() const;
};
std::vector<Student> students_of(const GradeReport& report);

// What went wrong with a submission, in a line: "not done", "does not compile", or the checks that
// failed; with_reasons: and why.
enum class Notes { names, with_reasons };
std::string note_of(const Grade& grade, Notes notes);

// One student: for each lab a line per check, with the hint where it failed.
std::string to_text(const GradeReport& report);

// A line per submission, and a line with the total of each student who handed in several labs.
std::string to_table(const GradeReport& report);

// The schema lockstep.grade/1. The same for the same submissions and secret.
nlohmann::ordered_json to_json(const GradeReport& report);

// What Gradescope's autograder reads as results.json, of one student. A hidden check says nothing
// but its points.
nlohmann::ordered_json to_gradescope(const GradeReport& report);

// The same lines as to_table. Cells that a spreadsheet would take for a formula begin with an
// apostrophe.
std::string to_csv(const GradeReport& report);

// One page that needs no other file: each student's total, submissions by lab, and where each lost
// points.
std::string to_html(const GradeReport& report);

}  // namespace lockstep::tools::grading
