// lockstep grade as teachers and students use it: files, formats, mistakes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>

#include "tests/labs/graded.h"
#include "tests/tools/formats_doc.h"

namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kGradedLab = "05_naive_all_reduce";

class GradeCommand : public ::testing::Test {
 protected:
  std::string file(const char* name) const { return (files_ / name).string(); }
  std::string path(const std::filesystem::path& folder) const { return folder.string(); }
  std::string solved() const { return path(handed_out_.teacher() / kGradedLab); }

  HandedOut handed_out_;
  TempFolder files_;
};

TEST_F(GradeCommand, ShowsPointsAndWhatIsToBeDone) {
  const Outcome blank = run_lockstep({"grade", path(handed_out_.labs() / kGradedLab)});
  expect_success(blank);
  EXPECT_THAT(blank.out, HasSubstr("0/20   rank_0_sends_the_sum_to_all"));
  EXPECT_THAT(blank.out, HasSubstr("to do: sum_for_all: receive every other"));
  EXPECT_THAT(blank.out, HasSubstr("0 of 50 points; 50 more are in the teacher's hidden checks"));
  EXPECT_THAT(blank.out, HasSubstr("sandbox: limits"));
  EXPECT_THAT(blank.out, Not(HasSubstr("drawn_sums")));
}

TEST_F(GradeCommand, ShowsWhatWasExpectedAHintWhatWasPrintedOrTheCompilersWords) {
  handed_out_.submit("alice", kGradedLab,
                     "#include \"naive_all_reduce.h\"\n#include <iostream>\n"
                     "void lab::naive_all_reduce(Rank&, std::span<double> buffer) {\n"
                     "  std::cout << \"buffer of \" << buffer.size() << \"\\n\";\n}\n");
  const Outcome outcome = run_lockstep({"grade", path(handed_out_.submissions() / "alice")});
  expect_success(outcome);
  EXPECT_THAT(outcome.out, HasSubstr("4 ranks: rank 0, element 0: expected 64, found 1"));
  EXPECT_THAT(outcome.out, HasSubstr("hint: the sum goes to every rank"));
  EXPECT_THAT(outcome.out, HasSubstr("    | buffer of 3"));
  handed_out_.submit("bob", kGradedLab, "void lab::naive_all_reduce(Rank&) { return 1 }\n");
  const Outcome broken = run_lockstep({"grade", path(handed_out_.submissions() / "bob")});
  expect_success(broken);
  EXPECT_THAT(broken.out, HasSubstr("it does not compile"));
  EXPECT_THAT(broken.out, HasSubstr("| naive_all_reduce.cpp:1:"));
  EXPECT_THAT(broken.out, HasSubstr("0 of 50 points"));
}

TEST_F(GradeCommand, HiddenChecksDrawOtherInputsFromAnotherSecretAndTheSameFromTheSame) {
  // Right for the visible sums alone, without a message: what one would hand in who has seen only
  // them.
  handed_out_.submit("table", kGradedLab,
                     "#include \"naive_all_reduce.h\"\n"
                     "void lab::naive_all_reduce(Rank& rank, std::span<double> buffer) {\n"
                     "  const int n = rank.world_size();\n"
                     "  for (std::size_t i = 0; i < buffer.size(); ++i)\n"
                     "    buffer[i] = n * (i + 1.0) + 5.0 * n * (n - 1);\n}\n");
  const std::string folder = path(handed_out_.submissions() / "table");
  const auto report_with = [&](const std::filesystem::path& teacher) {
    const Outcome outcome =
        run_lockstep({"grade", folder, "--hidden", path(teacher), "--json", "-"});
    expect_success(outcome);
    return outcome.out;
  };
  const HandedOut other;
  const std::string report = report_with(handed_out_.teacher());
  EXPECT_EQ(report, report_with(handed_out_.teacher()));
  EXPECT_NE(report, report_with(other.teacher()));
  const nlohmann::json grade = nlohmann::json::parse(report).at("submissions").at(0);
  EXPECT_EQ(grade.at("points"), 20);
  EXPECT_THAT(failed_checks(grade),
              ::testing::ElementsAre("rank_0_sends_the_sum_to_all", "other_ranks_get_the_sum",
                                     "drawn_sums", "every_message_once"));
}

TEST_F(GradeCommand, ABatchGoesToCsvAndHtmlWithItsNamesEscaped) {
  handed_out_.submit("carol/lab5", kGradedLab, handed_out_.solution(kGradedLab));
  handed_out_.submit("=1+1\"<b>", kGradedLab, handed_out_.blank(kGradedLab));
  std::filesystem::create_directory(handed_out_.submissions() / "dave");
  const Outcome outcome = run_lockstep(
      {"grade", path(handed_out_.submissions()), "--csv", file("g.csv"), "--html", file("g.html")});
  expect_success(outcome);
  EXPECT_THAT(outcome.out, HasSubstr("3 submissions"));
  const std::string csv = read_text(file("g.csv"));
  EXPECT_THAT(csv, HasSubstr("submission,lab,points,possible_points,percent,note\n"));
  EXPECT_THAT(csv, HasSubstr("\"carol/lab5\",\"05_naive_all_reduce\",50,50,100,\"\"\n"));
  EXPECT_THAT(csv, HasSubstr("\"'=1+1\"\"<b>\",\"05_naive_all_reduce\",0,50,0,"));
  EXPECT_THAT(csv, HasSubstr("\"dave\",\"\",0,0,0,\"holds no lab's source"));
  const std::string html = read_text(file("g.html"));
  EXPECT_THAT(html, HasSubstr("<td>carol/lab5</td><td class=\"n\">50/50</td>"));
  EXPECT_THAT(html, HasSubstr("=1+1&quot;&lt;b&gt;"));
  EXPECT_THAT(html, Not(HasSubstr("<b>")));
}

TEST_F(GradeCommand, SeveralLabsInOneFolderHaveATotal) {
  constexpr const char* kOtherLab = "07_ring_plan";
  for (const char* student : {"student10", "student2"}) {
    handed_out_.submit(student, kGradedLab, handed_out_.blank(kGradedLab));
    std::filesystem::rename(handed_out_.submissions() / student / "naive_all_reduce.cpp",
                            handed_out_.submissions() / student / "naive_all_reduce (1).cpp");
    handed_out_.submit(student, kOtherLab, handed_out_.solution(kOtherLab));
  }
  const Outcome outcome = run_lockstep(
      {"grade", path(handed_out_.submissions()), "--csv", file("g.csv"), "--html", file("g.html")});
  expect_success(outcome);
  EXPECT_THAT(outcome.out,
              ::testing::ContainsRegex("student2 +05_naive_all_reduce +0/50 +not done\n"
                                       "student2 +07_ring_plan +([0-9]+)/[0-9]+ +\n"
                                       "student2 +total +[0-9]+/[0-9]+ +\n"
                                       "student10 +05_naive_all_reduce"));
  const std::string csv = read_text(file("g.csv"));
  EXPECT_THAT(csv, HasSubstr("\"student2\",\"05_naive_all_reduce\",0,50,0,\"not done\"\n"));
  EXPECT_THAT(csv, HasSubstr("\"student2\",\"total\","));
  EXPECT_THAT(read_text(file("g.html")), HasSubstr("<td>total</td>"));
  const Outcome one = run_lockstep({"grade", path(handed_out_.submissions() / "student2")});
  expect_success(one);
  EXPECT_THAT(one.out, HasSubstr("lab 05_naive_all_reduce: "));
  EXPECT_THAT(one.out, HasSubstr("\ntotal: "));
  std::filesystem::copy(handed_out_.submissions() / "student2/naive_all_reduce (1).cpp",
                        handed_out_.submissions() / "student2/naive_all_reduce.cpp");
  EXPECT_THAT(run_lockstep({"grade", path(handed_out_.submissions() / "student2")}).out,
              HasSubstr("holds naive_all_reduce (1).cpp and naive_all_reduce.cpp"));
}

TEST_F(GradeCommand, WordsThatAreNoUtf8DoNotSpoilTheReport) {
  handed_out_.submit(
      "fr\xff"
      "ank",
      kGradedLab,
      "#include \"naive_all_reduce.h\"\n#include <stdexcept>\n#include <string>\n"
      "void lab::naive_all_reduce(Rank&, std::span<double>) {\n"
      "  throw std::runtime_error(std::string(299, 'x') + \"\xc3\xa9\xff\");\n}\n");
  handed_out_.submit("grace", kGradedLab, "#error \"\xff\xfe\"\n");
  expect_success(run_lockstep({"grade", path(handed_out_.submissions()), "--json", file("r.json"),
                               "--html", file("r.html")}));
  EXPECT_EQ(read_json(file("r.json")).at("submissions").size(), 2u);
}

TEST_F(GradeCommand, TheReportsFieldsAreDocumented) {
  handed_out_.submit("good", kGradedLab, handed_out_.solution(kGradedLab));
  handed_out_.submit("broken", kGradedLab, "int");
  std::filesystem::create_directory(handed_out_.submissions() / "empty");
  expect_success(
      run_lockstep({"grade", path(handed_out_.submissions()), "--json", file("report.json")}));
  Fields fields;
  collect_fields(read_json(file("report.json")), fields);
  expect_documented("lockstep.grade/1", fields);
}

TEST_F(GradeCommand, PassSetsTheExitCode) {
  expect_success(run_lockstep({"grade", solved(), "--pass", "100"}));
  expect_rejected(run_lockstep({"grade", path(handed_out_.labs() / kGradedLab), "--pass", "1"}), 1,
                  {"'05_naive_all_reduce' has 0 of 50 points, and --pass asks for 1 %"});
}

TEST_F(GradeCommand, GradescopesFileHidesWhatHiddenChecksFound) {
  handed_out_.submit("erin", kGradedLab, handed_out_.blank(kGradedLab));
  expect_success(run_lockstep({"grade", path(handed_out_.submissions() / "erin"), "--hidden",
                               path(handed_out_.teacher()), "--format", "gradescope", "--json",
                               file("results.json")}));
  const nlohmann::json results = read_json(file("results.json"));
  EXPECT_EQ(results.at("score"), 0);
  ASSERT_EQ(results.at("tests").size(), 6u);
  for (const nlohmann::json& test : results.at("tests")) {
    EXPECT_EQ(test.at("score"), 0);
    EXPECT_EQ(test.at("status"), "failed");
    EXPECT_GT(test.at("max_score").get<int>(), 0);
    const bool is_hidden = test.at("visibility") == "after_published";
    EXPECT_EQ(test.at("output").get<std::string>().starts_with("hint: "), is_hidden);
  }
}

TEST_F(GradeCommand, TheGradescopeArchiveGradesASubmission) {
  const std::filesystem::path root = files_ / "autograder";
  std::filesystem::create_directories(root / "submission");
  std::filesystem::create_directories(root / "source");
  write_text(root / "submission/naive_all_reduce.cpp", handed_out_.solution(kGradedLab));
  write_text(file("package.tar.gz"), "only setup.sh unpacks it");
  const std::string quoted = "'" + file("grader.zip") + "'";
  const std::string make = "'" LOCKSTEP_SOURCE "/scripts/make_gradescope.sh' '" +
                           path(handed_out_.teacher()) + "' '" + file("package.tar.gz") + "' " +
                           quoted + " >/dev/null && cd '" + path(root / "source") +
                           "' && cmake -E tar xf " + quoted + " && bash -n setup.sh";
  ASSERT_EQ(std::system(make.c_str()), 0);
  const std::string run = "LOCKSTEP='" LOCKSTEP_PROGRAM "' LOCKSTEP_AUTOGRADER='" + path(root) +
                          "' '" + path(root / "source/run_autograder") + "'";
  ASSERT_EQ(std::system(run.c_str()), 0);
  EXPECT_EQ(read_json(root / "results/results.json").at("score"), 100);

  std::filesystem::remove(root / "submission/naive_all_reduce.cpp");
  ASSERT_EQ(std::system(run.c_str()), 0);
  const nlohmann::json without = read_json(root / "results/results.json");
  EXPECT_EQ(without.at("score"), 0);
  EXPECT_THAT(without.at("output").get<std::string>(), HasSubstr("expected a lab's source"));
}

TEST_F(GradeCommand, MistakesAreOneLine) {
  expect_rejected(run_lockstep({"grade"}), 2, {"labdir"});
  expect_rejected(run_lockstep({"grade", file("nowhere")}), 2, {"found no folder"});
  expect_rejected(run_lockstep({"grade", path(files_.path())}), 2,
                  {"expected a lab's source", "found neither"});
  expect_rejected(run_lockstep({"grade", solved(), "--hidden", file("nowhere")}), 1,
                  {"[--hidden]", "secret"});
  write_text(files_ / "secret", "short\n");
  expect_rejected(run_lockstep({"grade", solved(), "--hidden", path(files_.path())}), 2,
                  {"[--hidden] expected a secret of at least 16 letters", "found 5"});
  expect_rejected(run_lockstep({"grade", path(handed_out_.labs()), "--format", "gradescope"}), 2,
                  {"[--format] gradescope is for one submission, found 24"});
  expect_rejected(run_lockstep({"grade", solved(), "--format", "xml"}), 2, {"gradescope"});
  expect_rejected(run_lockstep({"grade", solved(), "--csv", "/nowhere/g.csv"}), 1, {"--csv"});
  expect_rejected(run_lockstep({"grade", solved(), "--pass", "101"}), 2, {"--pass"});
}

TEST_F(GradeCommand, WarnsATeacherButNoStudentThatNothingContainsSubmissionsWithoutBubblewrap) {
  constexpr const char* kWarning = "bubblewrap is missing or does not work";
  handed_out_.submit("alice", kGradedLab, "#error\n");
  const std::string alice = path(handed_out_.submissions() / "alice");
  ::setenv("LOCKSTEP_BUBBLEWRAP", "off", 1);
  const Outcome student = run_lockstep({"grade", solved()}, files_.path());
  const Outcome teacher =
      run_lockstep({"grade", alice, "--hidden", path(handed_out_.teacher())}, files_.path());
  const Outcome batch = run_lockstep({"grade", path(handed_out_.submissions())}, files_.path());
  ::unsetenv("LOCKSTEP_BUBBLEWRAP");
  expect_success(student);
  EXPECT_THAT(student.out, HasSubstr("50 of 50 points"));
  EXPECT_THAT(student.out, HasSubstr("sandbox: limits\n"));
  EXPECT_THAT(student.out, Not(HasSubstr(kWarning)));
  EXPECT_THAT(teacher.out, HasSubstr(kWarning));
  EXPECT_THAT(batch.out, HasSubstr(kWarning));
}

TEST_F(GradeCommand, AHintFollowsAWrongAnswerAndNoOtherFailure) {
  // Rank 0 waits for itself.
  handed_out_.submit("waits", kGradedLab,
                     "#include \"naive_all_reduce.h\"\n"
                     "void lab::naive_all_reduce(Rank& rank, std::span<double> buffer) {\n"
                     "  rank.recv(buffer, rank.rank());\n}\n");
  const Outcome waits = run_lockstep({"grade", path(handed_out_.submissions() / "waits")});
  EXPECT_THAT(waits.out, HasSubstr("ranks wait for messages that are never sent"));
  EXPECT_THAT(waits.out, Not(HasSubstr("hint:")));
}

TEST_F(GradeCommand, PlaysAPuzzlesScheduleUpToTheCallThatBreaksARule) {
  const std::string solution = handed_out_.solution("p1_data_parallel");
  handed_out_.submit("right", "p1_data_parallel", solution);
  std::string wrong = solution;
  const std::string wait = "gpu.wait(gpu.all_reduce(layer));";
  wrong.replace(wrong.find(wait), wait.size(), "gpu.all_reduce(layer);");
  handed_out_.submit("wrong", "p1_data_parallel", wrong);
  handed_out_.submit("lab", kGradedLab, handed_out_.solution(kGradedLab));
  const auto draw = [&](const std::string& name) {
    return run_lockstep(
        {"grade", path(handed_out_.submissions() / name), "--watch", file("s.html")});
  };
  expect_success(draw("right"));
  const std::string page = read_text(file("s.html"));
  EXPECT_THAT(page, HasSubstr("\"backward(5, 3)\""));
  EXPECT_THAT(page, HasSubstr("\"update(0)\""));
  EXPECT_THAT(page, HasSubstr("The gradient of W5 holds the sum over all 4 ranks"));
  EXPECT_THAT(page, HasSubstr("The step is over after "));
  expect_success(draw("wrong"));
  const std::string page_of_wrong = read_text(file("s.html"));
  EXPECT_THAT(page_of_wrong, HasSubstr("before it waited for the sum of its gradient"));
  EXPECT_THAT(page_of_wrong, HasSubstr("The step ends here, because the schedule breaks a rule."));
  EXPECT_THAT(page_of_wrong, HasSubstr("\"backward(0, 3)\""));
  EXPECT_THAT(page_of_wrong, Not(HasSubstr("\"update(0)\"")));
  expect_rejected(draw("lab"), 2, {"--watch", "no schedule of a puzzle"});
  expect_rejected(
      run_lockstep({"grade", path(handed_out_.submissions()), "--watch", file("s.html")}), 2,
      {"--watch", "found 3 submissions"});
}

TEST_F(GradeCommand, NoLineIsLongerThan80Columns) {
  handed_out_.submit(
      "many/wrong", "07_ring_plan",
      "#include \"ring_plan.h\"\nusing namespace lockstep::plan;\n"
      "std::vector<Step> lab::reduce_scatter_steps(int, std::size_t) { return {}; }\n"
      "std::vector<Step> lab::all_gather_steps(int, std::size_t) { return {}; }\n"
      "CollectivePlan lab::ring_plan(int, std::size_t) { return {}; }\n");
  const Outcome table = run_lockstep({"grade", path(handed_out_.submissions() / "many")});
  const Outcome wrong = run_lockstep({"grade", path(handed_out_.submissions() / "many/wrong")});
  EXPECT_THAT(wrong.out, HasSubstr("hint: "));
  for (const Outcome& outcome : {table, wrong}) expect_narrow(outcome.out);
}

TEST_F(GradeCommand, StudentsLabsHoldNoSolutionAndNoSecret) {
  const std::string make = "'" LOCKSTEP_SOURCE "/scripts/make_labs.sh' '" + file("out") + "'";
  ASSERT_EQ(std::system((make + " >/dev/null").c_str()), 0);
  std::size_t num_files = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(file("out"))) {
    if (!entry.is_regular_file()) continue;
    ++num_files;
    EXPECT_NE(entry.path().filename(), "secret");
    EXPECT_THAT(read_text(entry.path()), Not(HasSubstr("SOLUTION"))) << entry.path();
  }
  EXPECT_GE(num_files, 16u * 4);
  EXPECT_EQ(read_text(files_ / "out/05_naive_all_reduce/naive_all_reduce.cpp"),
            handed_out_.blank(kGradedLab));
}

TEST_F(GradeCommand, LabsAreNotMadeWhereSomethingIs) {
  const std::string again = "'" LOCKSTEP_SOURCE "/scripts/make_labs.sh' '" +
                            path(handed_out_.labs()) + "' 2>'" + file("err") + "'";
  EXPECT_NE(std::system(again.c_str()), 0);
  EXPECT_THAT(read_text(file("err")), HasSubstr("is there already"));
}

}  // namespace
}  // namespace lockstep::testing
