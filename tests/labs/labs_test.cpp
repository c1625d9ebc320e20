// Each lab's solution has all points, its blank none, and mistakes lose some.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "tests/labs/graded.h"
#include "tests/labs/wrong_solutions.h"

namespace lockstep::testing {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using ::testing::StartsWith;

TEST(Labs, SolutionsHaveAllPointsAndBlanksCompileAndHaveNone) {
  const HandedOut handed_out;
  const std::vector<std::string> labs = handed_out.lab_names();
  ASSERT_THAT(labs, SizeIs(16));
  for (const std::string& lab : labs) {
    handed_out.submit("solution_" + lab, lab, handed_out.solution(lab));
    handed_out.submit("blank_" + lab, lab, handed_out.blank(lab));
  }
  const nlohmann::json grades = handed_out.grade();
  for (const std::string& lab : labs) {
    SCOPED_TRACE(lab);
    const nlohmann::json& solution = grades.at("solution_" + lab);
    EXPECT_EQ(solution.at("points"), 100);
    EXPECT_EQ(solution.at("possible_points"), 100);
    const nlohmann::json& blank = grades.at("blank_" + lab);
    EXPECT_EQ(blank.at("points"), 0);
    EXPECT_TRUE(blank.at("problem").is_null()) << blank.at("problem");
    for (const nlohmann::json& check : blank.at("checks")) {
      EXPECT_THAT(check.at("outcome").get<std::string>(), StartsWith("to do: "));
    }
  }
}

std::string mutated(const std::string& solution, const WrongSolution& wrong) {
  const std::size_t place = solution.find(wrong.text);
  EXPECT_NE(place, std::string::npos) << wrong.name << ": its text is not in the solution";
  EXPECT_EQ(solution.find(wrong.text, place + 1), std::string::npos)
      << wrong.name << ": its text is in the solution twice";
  if (place == std::string::npos) return solution;
  return std::string(solution).replace(place, wrong.text.size(), wrong.with);
}

class WrongSolutions : public ::testing::TestWithParam<const char*> {};

TEST_P(WrongSolutions, AreCaughtAndEveryCheckCatchesOne) {
  const std::string lab = GetParam();
  const HandedOut handed_out;
  for (const WrongSolution& wrong : wrong_solutions()) {
    if (wrong.lab != lab) continue;
    handed_out.submit(wrong.name, lab, mutated(handed_out.solution(lab), wrong));
  }
  const nlohmann::json grades = handed_out.grade();
  EXPECT_GE(grades.size(), 3u);
  std::set<std::string> checks;
  std::set<std::string> failed;
  for (const auto& [name, grade] : grades.items()) {
    EXPECT_TRUE(grade.at("problem").is_null()) << name << ": " << grade.at("problem");
    EXPECT_LT(grade.at("points"), 100) << name << " is not caught";
    for (const std::string& check : failed_checks(grade)) failed.insert(check);
    for (const nlohmann::json& check : grade.at("checks")) checks.insert(check.at("name"));
  }
  EXPECT_EQ(failed, checks);
}

// All that the checks say of a submission.
std::string outcomes(const nlohmann::json& submission) {
  std::string text;
  for (const nlohmann::json& check : submission.at("checks")) {
    text += check.at("outcome").get<std::string>() + '\n';
  }
  return text;
}

// The grades of a lab's wrong solutions, by name.
nlohmann::json grade_wrong_solutions(const std::string& lab) {
  const HandedOut handed_out;
  for (const WrongSolution& wrong : wrong_solutions()) {
    if (wrong.lab != lab) continue;
    handed_out.submit(wrong.name, lab, mutated(handed_out.solution(lab), wrong));
  }
  return handed_out.grade();
}

TEST(Labs, TheFoldsChecksNameTheFault) {
  const nlohmann::json grades = grade_wrong_solutions("13_fold_patches");
  const auto said = [&](const char* name) { return outcomes(grades.at(name)); };
  EXPECT_THAT(said("overwrites_instead_of_adding"),
              HasSubstr("pixel (0, 1), channel 0, which is in 2 of the patches: expected 12, found "
                        "10; that is its last copy's alone"));
  EXPECT_THAT(said("averages_the_copies"), HasSubstr("the mean of its copies' gradients"));
  EXPECT_THAT(said("window_on_its_side"),
              HasSubstr("patch 0, element 1 shows image 0, pixel (0, 1)"));
  EXPECT_THAT(said("stride_forgotten"), HasSubstr("pixel (1, 0), channel 0, which is in 1 of"));
  EXPECT_THAT(said("first_image_only"), HasSubstr("gradient of image 1, pixel (0, "));
}

TEST(Labs, AttentionsChecksNameTheFault) {
  const nlohmann::json grades = grade_wrong_solutions("14_attention_backward");
  const auto said = [&](const char* name) { return outcomes(grades.at(name)); };
  EXPECT_THAT(said("scores_not_scaled"), HasSubstr("lacks the factor 1 / sqrt(size)"));
  EXPECT_THAT(said("softmax_without_the_mean"), HasSubstr("gradient of the scores, element 0"));
  EXPECT_THAT(said("values_from_the_end"), HasSubstr("gradient of v, position 0 of 3"));
}

TEST(Labs, ThePipelinesChecksNameTheFault) {
  const nlohmann::json grades = grade_wrong_solutions("16_pipeline_schedule");
  const auto said = [&](const char* name) { return outcomes(grades.at(name)); };
  EXPECT_THAT(said("as_gpipe"), HasSubstr("stage 0 keeps 8 of them, expected 4"));
  EXPECT_THAT(said("none_ahead"), HasSubstr("done after 64 slots, expected 22"));
  EXPECT_THAT(said("last_micro_batch_never_goes_forward"), HasSubstr("before F"));
}

TEST(Labs, TheBucketPlansChecksNameTheFault) {
  const nlohmann::json grades = grade_wrong_solutions("08_bucket_plan");
  const auto said = [&](const char* name) { return outcomes(grades.at(name)); };
  EXPECT_THAT(said("in_the_order_of_registration"), HasSubstr("enters bucket 0 out of turn"));
  EXPECT_THAT(said("closes_before_the_limit"), HasSubstr("closes too early"));
  EXPECT_THAT(said("last_bucket_lost"), HasSubstr("in no bucket"));
  EXPECT_THAT(said("bytes_not_forgotten"), HasSubstr("closes too early"));
}

INSTANTIATE_TEST_SUITE_P(Of, WrongSolutions,
                         ::testing::Values("01_linear_backward", "02_cross_entropy",
                                           "03_scatter_plan", "04_replicate_backward",
                                           "05_naive_all_reduce", "06_ring_all_reduce",
                                           "07_ring_plan", "08_bucket_plan", "09_hook_order",
                                           "10_distributed_sampler", "11_no_sync", "12_alpha_beta",
                                           "13_fold_patches", "14_attention_backward",
                                           "15_sharded_step", "16_pipeline_schedule"),
                         [](const auto& lab) { return std::string(lab.param).substr(3); });

}  // namespace
}  // namespace lockstep::testing
