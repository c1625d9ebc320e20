// What grades look like: for people, and for programs that read them.
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

// One submission: a line per check, with the hint where it failed.
std::string to_text(const GradeReport& report, const Grade& grade);

// A line per submission.
std::string to_table(const GradeReport& report);

// The schema lockstep.grade/1. The same for the same submissions and secret.
nlohmann::ordered_json to_json(const GradeReport& report);

// What Gradescope's autograder reads as results.json. A hidden check says nothing but its points.
nlohmann::ordered_json to_gradescope(const Grade& grade);

// A line per submission, and a column per check number. Cells that a spreadsheet would take for a
// formula begin with an apostrophe.
std::string to_csv(const GradeReport& report);

// One page that needs no other file: submissions by lab, and where each lost points.
std::string to_html(const GradeReport& report);

}  // namespace lockstep::tools::grading
