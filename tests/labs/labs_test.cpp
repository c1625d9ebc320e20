// Each lab's solution has all points, its blank none, and mistakes lose some.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "tests/labs/graded.h"
#include "tests/labs/wrong_solutions.h"

namespace lockstep::testing {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using ::testing::StartsWith;

// "13.87 ms" of "13.87 ms, as the best known", by what the check is of: "time", "memory".
std::map<std::string, std::string> figures_of(const nlohmann::json& grade) {
  std::map<std::string, std::string> figures;
  for (const nlohmann::json& check : grade.at("checks")) {
    if (check.at("reached").is_null()) continue;
    const std::string reached = check.at("reached");
    const std::string name = check.at("name");
    figures[name.substr(0, name.find('_'))] = reached.substr(0, reached.find(','));
  }
  return figures;
}

TEST(Labs, SolutionsHaveAllPointsAndTheBooksTableHasTheBestThatTheyReach) {
  const HandedOut handed_out;
  const std::string page = read_text(LOCKSTEP_SOURCE "/docs/book/puzzles.md");
  ASSERT_THAT(handed_out.lab_names(), SizeIs(24));
  for (const auto& l : handed_out.lab_names()) handed_out.submit(l, l, handed_out.solution(l));
  const nlohmann::json grades = handed_out.grade();
  for (const std::string& lab : handed_out.lab_names()) {
    SCOPED_TRACE(lab);
    const nlohmann::json& solution = grades.at(lab);
    EXPECT_EQ(solution.at("points"), 100);
    EXPECT_EQ(solution.at("possible_points"), 100);
    if (!lab.starts_with('p')) continue;
    const auto figures = figures_of(solution);
    // The first puzzle's is the plain solution; the second's is the best of both.
    EXPECT_THAT(page, HasSubstr(lab.starts_with("p1")
                                    ? "Puzzle 1 without overlap takes " + figures.at("time")
                                    : " " + lab + " | " + figures.at("time") + " | " +
                                          figures.at("memory") + " |"));
  }
}

// The grades of one submission that holds every lab's blank.
std::map<std::string, nlohmann::json> grades_of_blanks(const HandedOut& handed_out) {
  const std::filesystem::path folder = handed_out.submissions() / "blank";
  for (const auto& l : handed_out.lab_names()) handed_out.submit("blank", l, handed_out.blank(l));
  const std::string report = (folder / "report.json").string();
  const Outcome outcome = run_lockstep(
      {"grade", folder.string(), "--hidden", handed_out.teacher().string(), "--json", report});
  expect_success(outcome);
  expect_narrow(outcome.out);
  std::map<std::string, nlohmann::json> grades;
  const nlohmann::json read = read_json(report);
  std::filesystem::remove_all(folder);
  for (const nlohmann::json& blank : read.at("submissions")) {
    EXPECT_EQ(blank.at("points"), 0);
    grades[blank.at("lab")] = blank;
  }
  return grades;
}

// The solution with one of its blanks open, counted from 0; empty if there are fewer.
std::string with_open_blank(const std::string& solution, int number) {
  const std::string begin_mark = "// SOLUTION begin: ";
  const std::string end_mark = "// SOLUTION end";
  std::size_t begin = solution.find(begin_mark);
  for (; number > 0 && begin != std::string::npos; --number) {
    begin = solution.find(begin_mark, begin + 1);
  }
  if (begin == std::string::npos) return "";
  const std::size_t function = begin + begin_mark.size();
  const std::string name = solution.substr(function, solution.find(':', function) - function);
  const std::size_t end = solution.find(end_mark, begin);
  return std::string(solution).replace(begin, end - begin, "throw NotDone(\"" + name + "\");\n");
}

TEST(Labs, BlanksHaveNoPointsAndEachIsAFunctionOfItsOwnThatSomeVisibleCheckAsksFor) {
  const HandedOut handed_out;
  const std::map<std::string, nlohmann::json> blanks = grades_of_blanks(handed_out);
  std::map<std::string, std::string> function_of;
  for (const std::string& lab : handed_out.lab_names()) {
    for (int i = 0;; ++i) {
      const std::string source = with_open_blank(handed_out.solution(lab), i);
      if (source.empty()) break;
      const std::string name = lab + "_" + std::to_string(i);
      const std::size_t quote = source.find("NotDone(\"") + 9;
      function_of[name] = source.substr(quote, source.find('"', quote) - quote);
      // Its definition is the last one before the blank.
      const std::string before = source.substr(0, source.rfind("throw NotDone"));
      const std::string body = before.substr(before.rfind("\n}\n") + 1);
      EXPECT_THAT(body, HasSubstr(function_of[name] + "(")) << name;
      const bool is_only = count_of(handed_out.solution(lab), "SOLUTION begin") == 1;
      if (!is_only) handed_out.submit(name, lab, source);
    }
    for (const nlohmann::json& check : blanks.at(lab).at("checks")) {
      EXPECT_THAT(check.at("outcome").get<std::string>(), StartsWith("to do: ")) << lab;
    }
  }
  const nlohmann::json grades = handed_out.grade();
  for (const auto& [name, function] : function_of) {
    SCOPED_TRACE(name);
    const nlohmann::json grade = grades.value(name, blanks.at(name.substr(0, name.size() - 2)));
    int num_visible = 0;
    for (const nlohmann::json& check : grade.at("checks")) {
      if (check.at("outcome") == "passed") continue;
      EXPECT_THAT(check.at("outcome").get<std::string>() + ":",
                  StartsWith("to do: " + function + ":"));
      EXPECT_TRUE(check.at("hint").is_null());
      if (check.at("shown") == "visible") ++num_visible;
    }
    EXPECT_GT(num_visible, 0);
  }
  // No function has two blanks.
  std::set<std::string> functions;
  for (const auto& [name, function] : function_of) {
    EXPECT_TRUE(functions.insert(name.substr(0, 2) + function).second) << name << ": " << function;
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

// All that the checks say of a submission.
std::string outcomes(const nlohmann::json& grade) {
  std::string text;
  for (const nlohmann::json& check : grade.at("checks")) {
    text += check.at("outcome").get<std::string>() + '\n';
  }
  return text;
}

class WrongSolutions : public ::testing::TestWithParam<const char*> {};

TEST_P(WrongSolutions, AreCaughtAndEveryCheckCatchesOne) {
  const std::string lab = GetParam();
  const HandedOut handed_out;
  for (const WrongSolution& wrong : kWrongSolutions) {
    if (wrong.lab != lab) continue;
    handed_out.submit(wrong.name, lab, mutated(handed_out.solution(lab), wrong));
  }
  const nlohmann::json grades = handed_out.grade();
  std::set<std::string> checks;
  std::set<std::string> failed;
  for (const WrongSolution& wrong : kWrongSolutions) {
    if (wrong.lab != lab) continue;
    const nlohmann::json& grade = grades.at(wrong.name);
    EXPECT_TRUE(grade.at("problem").is_null()) << wrong.name << ": " << grade.at("problem");
    EXPECT_LT(grade.at("points"), 100) << wrong.name << " is not caught";
    EXPECT_THAT(outcomes(grade), HasSubstr(wrong.said)) << wrong.name;
    for (const std::string& check : failed_checks(grade)) failed.insert(check);
    for (const nlohmann::json& check : grade.at("checks")) checks.insert(check.at("name"));
  }
  EXPECT_EQ(failed, checks);
}

INSTANTIATE_TEST_SUITE_P(
    Of, WrongSolutions,
    ::testing::Values("01_linear_backward", "02_cross_entropy", "03_scatter_plan",
                      "04_replicate_backward", "05_naive_all_reduce", "06_ring_all_reduce",
                      "07_ring_plan", "08_bucket_plan", "09_hook_order", "10_distributed_sampler",
                      "11_no_sync", "12_alpha_beta", "13_fold_patches", "14_attention_backward",
                      "15_sharded_step", "16_pipeline_schedule", "p1_data_parallel", "p2_overlap",
                      "p3_accumulation", "p4_zero2", "p5_zero3", "p6_gpipe", "p7_1f1b",
                      "p8_least_bubble"),
    [](const auto& lab) { return std::string(lab.param).substr(3); });

}  // namespace
}  // namespace lockstep::testing
