// lockstep learn: the list, what is kept of a run, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "tests/tools/run_lockstep.h"

namespace lockstep::testing {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;

class Learn : public ::testing::Test {
 protected:
  Outcome learn(const std::string& arguments) {
    Arguments command = words("learn " + arguments);
    command.insert(command.begin(), LOCKSTEP_PROGRAM);
    return MarkedProgram(command, {{"XDG_STATE_HOME", folder_.path().string()}}).wait();
  }
  std::filesystem::path file() const { return folder_.path() / "lockstep" / "learned"; }
  std::string kept() const {
    std::ifstream stream(file());
    return {std::istreambuf_iterator<char>(stream), {}};
  }

  TempFolder folder_;
};

TEST_F(Learn, ListsEveryProgramWithItsQuestion) {
  const Outcome outcome = learn("");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  for (const auto& entry : std::filesystem::directory_iterator(LOCKSTEP_SOURCE "/tutorials")) {
    const std::string name = entry.path().stem().string();
    if (name.size() < 3 || !std::isdigit(name[0]) || entry.path().extension() != ".cpp") continue;
    std::ifstream source(entry.path());
    std::string question;
    std::getline(source, question);
    EXPECT_THAT(outcome.out, ContainsRegex(name + " +[0-9]+  - "));
    EXPECT_THAT(outcome.out, HasSubstr(question.substr(7)));
  }
  EXPECT_THAT(outcome.out, HasSubstr("next: 01_list_devices"));
}

TEST_F(Learn, KeepsWhatPassedAndGoesOn) {
  const Outcome outcome = learn("next -- --fast --device cpu");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("01_list_devices passed\nnext: 02_check_gradients"));
  EXPECT_THAT(outcome.out, HasSubstr("Now try:\n  lockstep learn 01 -- --second cpu:5\n"));
  EXPECT_THAT(kept(), ContainsRegex("^01_list_devices 20[0-9-]+\n$"));
  EXPECT_THAT(learn("").out, ContainsRegex("01_list_devices +15  20[0-9-]+ "));
  EXPECT_EQ(learn("check_gradients -- --fast --device cpu").exit_code, 0);
  EXPECT_THAT(learn("").out, HasSubstr("next: 03_train_model"));
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
