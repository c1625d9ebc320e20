// Finds submissions and grades them: builds each one, runs its checks, and judges its answers. Then
// shows the grades, to people and to programs.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/grading/sandbox.h"
#include "tutorials/labs/judging/lab.h"
#include "tutorials/labs/puzzles/rules.h"

namespace lockstep::tools::grading {

struct Submission {
  std::string name;               // its folder, as the reports show it: "alice", "alice/lab5"
  std::filesystem::path source;   // empty if there is none
  const lab::Lab* lab = nullptr;  // nullptr if no source of a lab was found
  std::string problem;            // why it cannot be graded; or empty
};

struct Submissions {
  enum class Kind { one, batch };
  Kind kind = Kind::one;         // one folder with sources, or a folder of such folders
  std::vector<Submission> list;  // sorted by name, student2 before student10, then by lab
};

// A folder that holds sources of labs has one submission for each lab; otherwise each of its
// folders may have some. Copies renamed by browsers and course systems count: "ring_plan (1).cpp",
// "ring_plan-2.cpp". A folder without a source is a submission that cannot be graded. A
// folder `teacher` is left out, because solutions may be there.
// Throws Error{Usage} if this is not a folder, or it holds no submission.
Submissions find_submissions(const std::filesystem::path& folder);

// Makes text from a submission or its compiler valid UTF-8: other bytes become U+FFFD.
std::string clean_text(std::string_view text);

// The same as one line of at most 300 bytes; control characters become spaces.
std::string clean_line(std::string_view text);

struct CheckResult {
  const lab::Check* check = nullptr;
  int points = 0;       // all of the check's points, or none
  std::string outcome;  // what went wrong, in a line; or empty
  std::string reached;  // the figures of an answer that passed (Check::reached); or empty
  std::optional<lab::Played> played;  // of a puzzle's answer (Check::play)
  std::string printed;                // the first lines, if it is a visible check that failed
  bool is_wrong_answer = false;  // the judge said so: the hint fits. Else it crashed, waited, ...

  bool passed() const { return outcome.empty(); }
  bool is_to_do() const { return outcome.starts_with("to do: "); }  // the student left a blank
};

struct Points {
  int got = 0;
  int possible = 0;

  Points& operator+=(const Points& more) {
    got += more.got;
    possible += more.possible;
    return *this;
  }
};

struct Grade {
  Submission submission;
  std::string problem;               // why no check could run: from the compiler, or other words
  std::vector<CheckResult> results;  // of all checks, even if none could run

  Points points() const;
};

// The teacher's secret, from which hidden checks draw their inputs: the file `secret` in the folder
// that make_labs.sh --teacher writes.
// Throws Error{Io} if it cannot be read, Error{Usage} if it has fewer than 16 letters.
std::string read_secret(const std::filesystem::path& folder);

// secret: nullopt runs only the visible checks.
// Throws Error{Io} if the grader itself cannot work; no submission can make it throw.
Grade grade(const Places& places, const Submission& submission,
            const std::optional<std::string>& secret);

// Grades all, as many at a time as this machine has cores. The result is in the order of the list.
std::vector<Grade> grade_all(const Places& places, const std::vector<Submission>& submissions,
                             const std::optional<std::string>& secret);

// --- reports (report.cpp) ---

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

  Points points() const;
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

// A puzzle's schedule in the player (tools/watch); one that breaks a rule, up to there.
std::string to_player(const std::string& title, const lab::Played& played);

}  // namespace lockstep::tools::grading
