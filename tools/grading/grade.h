// Finds what students handed in, and grades it: builds each submission, runs its checks, and judges
// its answers.
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
  std::filesystem::path source;   // empty where there is none
  const lab::Lab* lab = nullptr;  // nullptr where no source of a lab was found
  std::string problem;            // why it cannot be graded; empty: it can
};

struct Submissions {
  enum class Kind { one, batch };
  Kind kind = Kind::one;         // one folder with sources, or a folder of such folders
  std::vector<Submission> list;  // by name, student2 before student10, then by lab
};

// A folder that holds sources of labs has one submission for each lab; otherwise each of its
// folders has some. Copies that browsers and course systems rename count: "ring_plan (1).cpp",
// "ring_plan-2.cpp". A folder without a source is a submission that cannot be graded. The folder
// `teacher`, which make_labs.sh writes, is left out.
// Throws Error{Usage} when this is not a folder, or nothing is in it.
Submissions find_submissions(const std::filesystem::path& folder);

// Text that a submission or its compiler wrote as valid UTF-8: other bytes become U+FFFD.
std::string clean_text(std::string_view text);

// The same as one line of at most 300 bytes; control characters become spaces.
std::string clean_line(std::string_view text);

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
