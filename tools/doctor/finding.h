// An invariant of data-parallel training that a program broke.
#pragma once

#include <string>
#include <vector>

namespace lockstep::doctor {

struct Finding {
  std::string invariant;  // its name: "mean-gradient"
  std::string found;      // what was found: numbers, ranks, step
  std::string expected;   // what should hold
  std::string advice;     // what to look at
};

using Findings = std::vector<Finding>;

}  // namespace lockstep::doctor
