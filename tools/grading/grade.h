// Grades one submission: builds it, runs its checks, and judges its answers.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/grading/places.h"
#include "tools/grading/submissions.h"

namespace lockstep::tools::grading {

struct CheckResult {
  const lab::Check* check = nullptr;
  int points = 0;       // all of the check's, or none
  std::string outcome;  // what went wrong, in a line; empty: nothing
  std::string printed;  // by a visible check that failed: the first lines

  bool passed() const { return outcome.empty(); }
  bool is_to_do() const { return outcome.starts_with("to do: "); }  // a blank of the lab is left
};

struct Grade {
  Submission submission;
  std::string problem;               // why no check could run: the compiler's words, or others
  std::vector<CheckResult> results;  // of all checks that were asked for, also where none could run

  int points() const;
  int possible_points() const;
};

// The teacher's secret, from which hidden checks draw their inputs: the file `secret` in the folder
// that make_labs.sh calls teacher.
// Throws Error{Io} when it cannot be read, Error{Usage} when it has fewer than 16 letters.
std::string read_secret(const std::filesystem::path& folder);

// secret: none runs the visible checks only.
// Throws Error{Io} when the grader itself cannot work; nothing that a submission does throws.
Grade grade(const Places& places, const Submission& submission,
            const std::optional<std::string>& secret);

// The same for all, several at a time: as many as this machine has cores. In the order of the list.
std::vector<Grade> grade_all(const Places& places, const std::vector<Submission>& submissions,
                             const std::optional<std::string>& secret);

}  // namespace lockstep::tools::grading
