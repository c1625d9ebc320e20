// `lockstep doctor` as a command: what it is told, what it says and how it ends.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/types.h>

#include <string>

#include "tests/tools/formats_doc.h"
#include "tests/tools/run_lockstep.h"

namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

Arguments doctor(const std::string& flags, const std::string& script) {
  Arguments arguments = words("doctor " + flags + " -- sh -c");
  arguments.push_back(script);
  return arguments;
}

TEST(Doctor, SaysThatAProgramHasRecordedNothing) {
  const Outcome outcome = run_lockstep(doctor("", "echo hello"));
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.out, StartsWith("the program has recorded nothing"));
  EXPECT_THAT(outcome.out, ::testing::Not(HasSubstr("no broken invariant")));
  EXPECT_EQ(outcome.err, "hello\n") << "what the program prints goes to standard error";
}

TEST(Doctor, TellsHowAProgramFailed) {
  const Outcome outcome = run_lockstep(doctor("", "echo the reason >&2; exit 3"));
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.out, HasSubstr("program: the program ended with exit code 3: the reason\n"));
}

TEST(Doctor, KillsAProgramThatHangsWithAllThatItStarted) {
  const TempFolder folder;
  const std::string leaves = "setsid sh -c 'echo $$ > helper; exec sleep 50' & ";
  const Outcome outcome = run_lockstep(doctor("--timeout 1", leaves + "sleep 50"), folder.path());
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.out, HasSubstr("program: the program did not end within 1 s"));
  const pid_t helper = std::stoi(read_text(folder / "helper"));
  EXPECT_EQ(::kill(helper, 0), -1) << "it had left the program's session";
}

// The doctor's words, in one line.
std::string said_of_ranks_with(const std::string& num_rows) {
  const Outcome outcome = run_command("doctor -- " LOCKSTEP_FEW_ROWS " " + num_rows);
  EXPECT_EQ(outcome.exit_code, 1) << num_rows;
  std::string text;
  for (const std::string& word : words(outcome.out)) text += (text.empty() ? "" : " ") + word;
  return text;
}

TEST(Doctor, NamesTheRanksWithoutRowsThatAnAverageCounts) {
  const std::string one = said_of_ranks_with("1 1 1 0");
  EXPECT_THAT(one, HasSubstr("mean-gradient: in step 0 the gradient is 0.75 times"));
  EXPECT_THAT(one,
              HasSubstr("(rows: 1, 1, 1, 0): rank 3 has no rows, and the average over 4 ranks"));
  EXPECT_THAT(one, HasSubstr("hint: weigh each rank's loss by its rows * ranks / rows of all"));
  EXPECT_THAT(one, ::testing::Not(HasSubstr("divided twice")));
  const std::string two = said_of_ranks_with("2 2 2 0 0");
  EXPECT_THAT(two, HasSubstr("0.6 times"));
  EXPECT_THAT(two, HasSubstr("ranks 3, 4 have no rows"));
  const std::string uneven = said_of_ranks_with("3 3 2 0");
  EXPECT_THAT(uneven, HasSubstr("equal-rows: in step 0 rows weigh differently"));
  EXPECT_THAT(uneven, HasSubstr("counts 0.6667, 0.6667, 1, - times"));
  EXPECT_THAT(uneven, HasSubstr("rank 3 has no rows"));
}

TEST(Doctor, WritesItsFindingsAsJson) {
  const TempFolder folder;
  const Outcome outcome =
      run_lockstep({"doctor", "--json", "findings.json", "--", LOCKSTEP_BUG}, folder.path());
  EXPECT_EQ(outcome.exit_code, 1);
  const nlohmann::json json = read_json(folder / "findings.json");
  Fields fields;
  collect_fields(json, fields);
  expect_documented("lockstep.doctor/1", fields);
  EXPECT_EQ(json["exit_code"], 0);
  EXPECT_EQ(json["timed_out"], false);
  ASSERT_EQ(json["findings"].size(), 1u);
  EXPECT_EQ(json["findings"][0]["invariant"], "mean-gradient");
  EXPECT_THAT(
      json["findings"][0]["found"].get<std::string>(),
      HasSubstr("in step 0 the gradient is 2 times that of the mean loss over the 64 rows"));
}

}  // namespace
}  // namespace lockstep::testing
