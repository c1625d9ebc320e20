// Submissions of lab 05 that attack the grader. Each costs its own points, and nothing else.
#pragma once

#include <string>
#include <vector>

namespace lockstep::testing {

struct HostileSubmission {
  std::string name;
  std::string source;
  std::string outcome;  // what the report says of it, in part
};

// Nothing of these gets a point. victim: a file that some of them try to change.
std::vector<HostileSubmission> hostile_submissions(const std::string& victim);

// The solution, with an attack before it that throws if it succeeds: all points mean that it was
// refused. victim: a file; secret: another, that nobody may read.
std::vector<HostileSubmission> refused_attacks(const std::string& solution,
                                               const std::string& victim,
                                               const std::string& secret);

}  // namespace lockstep::testing
