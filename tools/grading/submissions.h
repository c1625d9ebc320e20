// Finds what students handed in: the sources of labs, by their names.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

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

}  // namespace lockstep::tools::grading
