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

// The solution, which first tries to leave the sandbox in every way that we know, and aborts if one
// works: all points mean that none did. secret, victim: files that it may not read, or change;
// port: where a server of this machine listens. It starts a process that sleeps kLeftBehind
// seconds.
inline constexpr const char* kLeftBehind = "86399.5";
std::string escape_attempts(const std::string& solution, const std::string& secret,
                            const std::string& victim, int port);

}  // namespace lockstep::testing
