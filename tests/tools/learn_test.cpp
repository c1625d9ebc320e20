// lockstep learn: the list, what is kept of a run, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/tools/run_lockstep.h"

namespace lockstep::testing {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

class Learn : public ::testing::Test {
 protected:
  Outcome learn(const std::string& arguments) {
    Arguments command = words("learn " + arguments);
    command.insert(command.begin(), LOCKSTEP_PROGRAM);
    return MarkedProgram(command, {{"XDG_STATE_HOME", folder_.path().string()}}).wait();
  }
  std::filesystem::path file() const { return folder_.path() / "lockstep" / "learned"; }
  std::string kept() const { return read_text(file()); }

  TempFolder folder_;
};

// A question of two lines becomes one: each but the last ends with a word, the last with "?".
std::string join_continued_questions(std::string text) {
  for (std::size_t at = 0; (at = text.find("\n  ", at)) != text.npos; ++at) {
    const std::size_t begin = text.rfind('\n', at - 1) + 1;
    if (text.compare(begin, 2, "  ") == 0 && text[at - 1] != '?') text.replace(at, 3, " ");
  }
  return text;
}

TEST_F(Learn, ListsEveryProgramWithItsQuestion) {
  const Outcome outcome = learn("");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  const std::string joined = join_continued_questions(outcome.out);
  for (const auto& entry : std::filesystem::directory_iterator(LOCKSTEP_SOURCE "/tutorials")) {
    const std::string name = entry.path().stem().string();
    if (name.size() < 3 || !std::isdigit(name[0]) || entry.path().extension() != ".cpp") continue;
    const std::string question = lines_of(read_text(entry.path()))[0];
    EXPECT_THAT(outcome.out, ContainsRegex(name + " +[0-9]+  -\n"));
    EXPECT_THAT(joined, HasSubstr("\n  " + question.substr(7)));
  }
  EXPECT_THAT(outcome.out, HasSubstr("next: 00_whole_engine"));
}

TEST_F(Learn, FitsIn80Columns) {
  expect_narrow(learn("").out);
}

TEST_F(Learn, KeepsWhatPassedAndGoesOn) {
  const Outcome outcome = learn("next -- --fast --device cpu");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("00_whole_engine passed\nnext: 01_list_devices"));
  EXPECT_THAT(outcome.out, HasSubstr("Now try:\n  lockstep learn 00 -- --hidden 512\n"));
  EXPECT_THAT(kept(), ContainsRegex("^whole_engine 20[0-9-]+\n$"));
  EXPECT_THAT(learn("").out, ContainsRegex("00_whole_engine +60  20[0-9-]+\n"));
  EXPECT_EQ(learn("list_devices -- --fast --device cpu").exit_code, 0);
  EXPECT_THAT(learn("").out, HasSubstr("next: 02_check_gradients"));
}

TEST_F(Learn, KnowsWhatPassedUnderAnotherNumber) {
  std::filesystem::create_directories(file().parent_path());
  std::ofstream(file()) << "00_whole_engine 2026-11-20\n01_list_devices 2026-11-20\n"
                           "05_sum_gradients 2026-11-21\n27_split_model 2026-11-22\n";
  const std::string list = learn("").out;
  EXPECT_THAT(list, ContainsRegex("07_sum_gradients +20  2026-11-21\n"));
  EXPECT_THAT(list, ContainsRegex("05_wrap_model +20  -\n"));
  EXPECT_THAT(list, HasSubstr("next: 02_check_gradients"));
}

TEST_F(Learn, BeginsWithTheFirstParagraphOfTheChapter) {
  const Outcome outcome = learn("list_devices -- --fast --device cpu");
  const std::string before = outcome.out.substr(0, outcome.out.find("Question: "));
  const std::string line = lines_of(read_text(LOCKSTEP_SOURCE "/docs/book/list_devices.md"))[2];
  const std::string first_words = line.substr(0, line.find(' ', 20));
  EXPECT_EQ(before.find(first_words), 0) << before;
  EXPECT_THAT(before, ContainsRegex("\n\nThe chapter: .*list_devices\\.(html|md)\n\n$"));
  EXPECT_THAT(learn("list_devices -- --help").out, Not(HasSubstr("The chapter: ")));
}

TEST_F(Learn, KeepsNothingOfWhatFailed) {
  const Outcome outcome = learn("2 -- --nonsense");
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("--nonsense"));
  EXPECT_EQ(learn("2 -- --help").exit_code, 0);
  EXPECT_FALSE(std::filesystem::exists(file()));
}

TEST_F(Learn, RefusesWhatItDoesNotKnow) {
  const Outcome unknown = learn("02_chek_gradients");
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("did you mean '02_check_gradients'?"));
  EXPECT_EQ(learn("99").exit_code, 2);
}

}  // namespace
}  // namespace lockstep::testing
