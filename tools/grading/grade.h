// Finds submissions and grades them: builds each one, runs its checks, and judges its answers.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/grading/sandbox.h"
#include "tutorials/labs/judging/lab.h"

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
  std::vector<Submission> list;  // by name, student2 before student10, then by lab
};

// A folder that holds sources of labs has one submission for each lab; otherwise each of its
// folders may have some. Copies renamed by browsers and course systems count: "ring_plan (1).cpp",
// "ring_plan-2.cpp". A folder without a source is a submission that cannot be graded. The folder
// `teacher`, which make_labs.sh writes, is left out.
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
  std::string printed;  // the first lines, if it is a visible check that failed

  bool passed() const { return outcome.empty(); }
  bool is_to_do() const { return outcome.starts_with("to do: "); }  // the student left a blank
};

struct Grade {
  Submission submission;
  std::string problem;               // why no check could run: from the compiler, or other words
  std::vector<CheckResult> results;  // of all checks, even if none could run

  int points() const;
  int possible_points() const;
};

// The teacher's secret, from which hidden checks draw their inputs: the file `secret` in the folder
// `teacher` that make_labs.sh writes.
// Throws Error{Io} if it cannot be read, Error{Usage} if it has fewer than 16 letters.
std::string read_secret(const std::filesystem::path& folder);

// secret: nullopt runs only the visible checks.
// Throws Error{Io} if the grader itself cannot work; no submission can make it throw.
Grade grade(const Places& places, const Submission& submission,
            const std::optional<std::string>& secret);

// Grades all, as many at a time as this machine has cores. The result is in the order of the list.
std::vector<Grade> grade_all(const Places& places, const std::vector<Submission>& submissions,
                             const std::optional<std::string>& secret);

}  // namespace lockstep::tools::grading
