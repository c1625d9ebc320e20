#include "tests/labs/graded.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <stdexcept>

namespace lockstep::testing {
namespace {

std::string source_name(const std::string& lab) {
  return lab.substr(3) + ".cpp";
}

}  // namespace

HandedOut::HandedOut()
    : labs_(folder_ / "labs"),
      teacher_(folder_ / "teacher"),
      submissions_(folder_ / "submissions") {
  const std::string command = "'" LOCKSTEP_SOURCE "/scripts/make_labs.sh' '" + labs_.string() +
                              "' --teacher '" + teacher_.string() + "' >/dev/null";
  if (std::system(command.c_str()) != 0) throw std::runtime_error("make_labs.sh failed");
  std::filesystem::create_directory(submissions_);
}

std::vector<std::string> HandedOut::lab_names() const {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(labs_)) {
    names.push_back(entry.path().filename());
  }
  std::ranges::sort(names);
  return names;
}

std::string HandedOut::solution(const std::string& lab) const {
  return read_text(teacher() / lab / source_name(lab));
}

std::string HandedOut::blank(const std::string& lab) const {
  return read_text(labs_ / lab / source_name(lab));
}

void HandedOut::submit(const std::string& name, const std::string& lab,
                       const std::string& source) const {
  std::filesystem::create_directories(submissions_ / name);
  write_text(submissions_ / name / source_name(lab), source);
}

nlohmann::json HandedOut::grade() const {
  const std::filesystem::path report = folder_ / "report.json";
  const Outcome outcome = run_lockstep(
      {"grade", submissions_.string(), "--hidden", teacher().string(), "--json", report.string()});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  const nlohmann::json read = read_json(report);
  nlohmann::json by_name;
  for (const nlohmann::json& submission : read.at("submissions")) {
    by_name[submission.at("name").get<std::string>()] = submission;
  }
  return by_name;
}

std::vector<std::string> failed_checks(const nlohmann::json& submission) {
  std::vector<std::string> names;
  for (const nlohmann::json& check : submission.at("checks")) {
    if (check.at("outcome") != "passed") names.push_back(check.at("name"));
  }
  return names;
}

}  // namespace lockstep::testing
