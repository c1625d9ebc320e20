// The labs as make_labs.sh hands them out, and what `lockstep grade` says of submissions.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/temp_folder.h"
#include "tests/tools/run_lockstep.h"

namespace lockstep::testing {

// The folders of make_labs.sh, made anew; and one for submissions.
class HandedOut {
 public:
  HandedOut();

  const std::filesystem::path& labs() const { return labs_; }
  const std::filesystem::path& teacher() const { return teacher_; }
  std::vector<std::string> lab_names() const;  // "01_linear_backward", ...
  std::string solution(const std::string& lab) const;
  std::string blank(const std::string& lab) const;

  // Hands a source in as submissions()/name/<the lab's source>.
  void submit(const std::string& name, const std::string& lab, const std::string& source) const;
  const std::filesystem::path& submissions() const { return submissions_; }

  // The report of `lockstep grade submissions() --hidden teacher() --json ...`: by name.
  nlohmann::json grade() const;

 private:
  TempFolder folder_;
  std::filesystem::path labs_;
  std::filesystem::path teacher_;
  std::filesystem::path submissions_;
};

// The names of the checks that a submission failed.
std::vector<std::string> failed_checks(const nlohmann::json& submission);

}  // namespace lockstep::testing
