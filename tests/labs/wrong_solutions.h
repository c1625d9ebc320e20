// Plausible mistakes: each is a lab's solution with one text replaced.
#pragma once

#include <string>
#include <vector>

namespace lockstep::testing {

struct WrongSolution {
  std::string lab;   // "05_naive_all_reduce"
  std::string name;  // what is wrong: "average_instead_of_sum"
  std::string text;  // stands in the solution exactly once
  std::string with;
  std::string said{};  // among what the checks say of it
};

extern const std::vector<WrongSolution> kWrongSolutions;

}  // namespace lockstep::testing
