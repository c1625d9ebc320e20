// Submissions that attack: in one batch with good ones, which keep all their points.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>

#include "tests/labs/graded.h"
#include "tests/labs/hostile_submissions.h"

namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kLab = "05_naive_all_reduce";

// All that the report says of a submission.
std::string all_words(const nlohmann::json& grade) {
  std::string words = grade.at("problem").is_null() ? "" : "does not compile";
  for (const nlohmann::json& check : grade.at("checks")) {
    words += " / " + check.at("outcome").get<std::string>();
  }
  return words;
}

bool has_landlock() {
  return ::syscall(444, nullptr, 0, 1) >= 1;
}

class Hostile : public ::testing::Test {
 protected:
  Hostile() {
    write_text(victim_, "untouched");
    std::filesystem::permissions(victim_, std::filesystem::perms::all);
  }
  void expect_untouched() const {
    EXPECT_EQ(read_text(victim_), "untouched");
    EXPECT_FALSE(std::filesystem::exists("/tmp/stolen"));
    EXPECT_FALSE(std::filesystem::exists("/tmp/lockstep_escape"));
    EXPECT_FALSE(std::filesystem::exists("/tmp/lockstep_escape_folder"));
  }

  HandedOut handed_out_;
  std::string victim_ = (handed_out_.submissions() / "victim.txt").string();
};

TEST_F(Hostile, SubmissionsCostTheirOwnPointsAndNothingElse) {
  const auto hostile = hostile_submissions(victim_);
  for (const HostileSubmission& submission : hostile) {
    handed_out_.submit(submission.name, kLab, submission.source);
  }
  handed_out_.submit("a_good_one", kLab, handed_out_.solution(kLab));
  handed_out_.submit("the_last_good_one", kLab, handed_out_.solution(kLab));
  const nlohmann::json grades = handed_out_.grade();
  EXPECT_EQ(grades.at("a_good_one").at("points"), 100);
  EXPECT_EQ(grades.at("the_last_good_one").at("points"), 100);
  for (const HostileSubmission& submission : hostile) {
    const nlohmann::json& grade = grades.at(submission.name);
    EXPECT_EQ(grade.at("points"), 0) << submission.name << ": " << all_words(grade);
    EXPECT_THAT(all_words(grade), HasSubstr(submission.outcome)) << submission.name;
  }
  expect_untouched();
}

// bubblewrap: the value of LOCKSTEP_BUBBLEWRAP.
class Attacks : public Hostile, public ::testing::WithParamInterface<const char*> {
 protected:
  Attacks() { ::setenv("LOCKSTEP_BUBBLEWRAP", GetParam(), 1); }
  ~Attacks() override { ::unsetenv("LOCKSTEP_BUBBLEWRAP"); }
};

TEST_P(Attacks, AreRefusedAndTheSubmissionGoesOn) {
  const std::string secret = (handed_out_.teacher() / "secret").string();
  const auto attacks = refused_attacks(handed_out_.solution(kLab), victim_, secret);
  for (const HostileSubmission& attack : attacks) {
    handed_out_.submit(attack.name, kLab, attack.source);
  }
  const nlohmann::json grades = handed_out_.grade();
  for (const HostileSubmission& attack : attacks) {
    if (attack.name == "reads_the_secret" && !has_landlock() && ::geteuid() != 0) continue;
    const nlohmann::json& grade = grades.at(attack.name);
    EXPECT_EQ(grade.at("points"), 100) << attack.name << ": " << all_words(grade);
  }
  expect_untouched();
}

INSTANTIATE_TEST_SUITE_P(WithBubblewrap, Attacks, ::testing::Values("where_installed", "off"),
                         [](const auto& value) { return std::string(value.param); });

TEST_F(Hostile, TheCompilerReachesNeitherTheSecretNorTheSolution) {
  if (!has_landlock()) GTEST_SKIP() << "this kernel has no Landlock";
  const std::string path = (handed_out_.teacher() / "secret").string();
  std::string secret = read_text(path);
  secret.pop_back();
  ASSERT_EQ(secret.size(), 64u);
  const std::string solution = handed_out_.solution(kLab);
  handed_out_.submit("includes_it", kLab, "#include \"" + path + "\"\n" + solution);
  handed_out_.submit("assembles_it", kLab,
                     "asm(\".data\\n.incbin \\\"" + path + "\\\"\\n\");\n" + solution);
  handed_out_.submit("includes_the_solution", kLab,
                     "#include \"" LOCKSTEP_SOURCE
                     "/tutorials/labs/05_naive_all_reduce/naive_all_reduce.cpp\"\n");
  const nlohmann::json grades = handed_out_.grade();
  EXPECT_FALSE(grades.at("includes_the_solution").at("problem").is_null());
  EXPECT_THAT(grades.dump(), Not(HasSubstr(secret)));
  EXPECT_FALSE(grades.at("includes_it").at("problem").is_null());
  EXPECT_FALSE(grades.at("assembles_it").at("problem").is_null());
}

TEST_F(Hostile, ALinkIsNoSource) {
  const std::filesystem::path folder = handed_out_.submissions() / "mallory";
  std::filesystem::create_directory(folder);
  std::filesystem::create_symlink(handed_out_.teacher() / kLab / "naive_all_reduce.cpp",
                                  folder / "naive_all_reduce.cpp");
  const nlohmann::json grades = handed_out_.grade();
  EXPECT_EQ(grades.at("mallory").at("points"), 0);
  EXPECT_THAT(grades.at("mallory").at("problem").get<std::string>(), HasSubstr("no lab's source"));
}

}  // namespace
}  // namespace lockstep::testing
