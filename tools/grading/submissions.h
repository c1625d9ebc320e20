// What is handed in: the source of a lab, found by its name.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tutorials/labs/judging/lab.h"

namespace lockstep::tools::grading {

struct Submission {
  std::string name;               // its folder, as the reports show it: "alice", "alice/lab5"
  std::filesystem::path source;   // empty where there is none
  const lab::Lab* lab = nullptr;  // which it is; nullptr where that is unknown
  std::string problem;            // why it cannot be graded; empty: it can
};

struct Submissions {
  enum class Kind { one, batch };
  Kind kind = Kind::one;
  std::vector<Submission> list;  // by name
};

// A folder that holds the source of a lab is one submission; else each of its folders is one, or
// holds some. The folder `teacher` that make_labs.sh writes is none. A folder without a source is
// one that cannot be graded.
// Throws Error{Usage} when the folder is none, or nothing is in it.
Submissions find_submissions(const std::filesystem::path& folder);

}  // namespace lockstep::tools::grading
