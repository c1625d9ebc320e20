// Shows grades, to people and to programs.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "tools/grading/grade.h"

namespace lockstep::tools::grading {

struct GradeReport {
  std::vector<Grade> grades;
  std::vector<std::string> sandbox;  // what confined the submissions: "limits", "bubblewrap"
  bool has_hidden = false;           // true if hidden checks were run
};

// All submissions of one student: those whose names begin with the same folder. If a lab occurs
// there twice, that folder holds several students, and each submission is one student's.
struct Student {
  std::string name;
  std::vector<const Grade*> grades;

  int points() const;
  int possible_points() const;
};
std::vector<Student> students_of(const GradeReport& report);

// For one student: one line per check of each lab, with the hint if it failed.
std::string to_text(const GradeReport& report);

// One line per submission, and one with the total of each student who handed in several labs.
std::string to_table(const GradeReport& report);

// The schema lockstep.grade/1. The result depends only on the submissions and the secret.
nlohmann::ordered_json to_json(const GradeReport& report);

// The results.json of one student for Gradescope's autograder. Of hidden checks it shows only the
// points.
nlohmann::ordered_json to_gradescope(const GradeReport& report);

// The lines of to_table(). Cells that a spreadsheet would take for a formula begin with an
// apostrophe.
std::string to_csv(const GradeReport& report);

// The lines of to_table() as a page that needs no other file.
std::string to_html(const GradeReport& report);

}  // namespace lockstep::tools::grading
