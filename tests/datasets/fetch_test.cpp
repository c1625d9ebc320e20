// datasets/fetch.sh against a mirror of local files, so that no test needs the network.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>

#include "engine/core/error.h"
#include "tests/datasets/real_data.h"
#include "tests/support/temp_folder.h"

namespace lockstep::datasets {
namespace {

using lockstep::testing::read_text;
using lockstep::testing::TempFolder;
using lockstep::testing::write_text;
using ::testing::HasSubstr;

class FetchScript : public ::testing::Test {
 protected:
  void SetUp() override {
    if (std::system("command -v curl >/dev/null") != 0) GTEST_SKIP() << "curl is not installed";
    std::filesystem::create_directories(mirror() / "tinyshakespeare");
  }

  // Runs the script with its mirror; its output is in output() afterwards.
  int fetch(const std::string& arguments) {
    const std::string command = fmt::format(
        "LOCKSTEP_MIRROR='file://{}' '{}/datasets/fetch.sh' {} >'{}' 2>&1", mirror().string(),
        LOCKSTEP_SOURCE_DIR, arguments, (folder_ / "output").string());
    const int status = std::system(command.c_str());
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  std::string output() const { return read_text(folder_ / "output"); }

  std::filesystem::path mirror() const { return folder_ / "mirror"; }
  std::filesystem::path text_in_mirror() const { return mirror() / "tinyshakespeare/input.txt"; }
  std::filesystem::path target() const { return folder_ / "target"; }
  std::filesystem::path fetched_text() const { return target() / "tinyshakespeare/input.txt"; }
  std::filesystem::path partial_text() const {
    return target() / "tinyshakespeare/input.txt.partial";
  }

  // Puts the real text into the mirror; false where it is not on this machine.
  bool provide_real_text() {
    const auto folder = folder_with_real("tinyshakespeare");
    if (folder) std::filesystem::copy(*folder / "tinyshakespeare/input.txt", text_in_mirror());
    return folder.has_value();
  }

 private:
  TempFolder folder_;
};

TEST_F(FetchScript, RefusesUnknownNamesWithItsUsage) {
  EXPECT_EQ(fetch("imagenet"), 2);
  EXPECT_THAT(output(), HasSubstr("usage: datasets/fetch.sh mnist|fashion-mnist|tinyshakespeare"));
  EXPECT_EQ(fetch(""), 2);
}

TEST_F(FetchScript, FailsInOneLineWhenNothingCanBeDownloaded) {
  for (const char* name : {"mnist", "fashion-mnist", "tinyshakespeare"}) {
    EXPECT_EQ(fetch(fmt::format("{} '{}'", name, target().string())), 1);
    EXPECT_THAT(output(), HasSubstr("cannot download"));
    EXPECT_EQ(std::ranges::count(output(), '\n'), 1) << output();
  }
}

TEST_F(FetchScript, KeepsNothingOfAFileWithAnotherChecksum) {
  write_text(text_in_mirror(), "To be, or not to be");
  EXPECT_EQ(fetch("tinyshakespeare '" + target().string() + "'"), 1);
  EXPECT_THAT(output(), HasSubstr("does not have the expected SHA-256"));
  EXPECT_FALSE(std::filesystem::exists(fetched_text()));
  EXPECT_FALSE(std::filesystem::exists(partial_text()));
}

TEST_F(FetchScript, FetchesOnceAndKeepsWhatIsWhole) {
  if (!provide_real_text()) GTEST_SKIP() << "no tinyshakespeare; set LOCKSTEP_TEST_DATA";
  ASSERT_EQ(fetch("tinyshakespeare '" + target().string() + "'"), 0) << output();
  EXPECT_EQ(read_text(fetched_text()), read_text(text_in_mirror()));
  std::filesystem::remove(text_in_mirror());
  EXPECT_EQ(fetch("tinyshakespeare '" + target().string() + "'"), 0);
  EXPECT_THAT(output(), HasSubstr("already there"));
}

TEST_F(FetchScript, ContinuesAnInterruptedDownloadAndReplacesARottenOne) {
  if (!provide_real_text()) GTEST_SKIP() << "no tinyshakespeare; set LOCKSTEP_TEST_DATA";
  const std::string text = read_text(text_in_mirror());
  for (const std::string& rest : {text.substr(0, 1000), std::string("rotten"), text + "too long"}) {
    std::filesystem::remove_all(target());
    std::filesystem::create_directories(target() / "tinyshakespeare");
    write_text(partial_text(), rest);
    ASSERT_EQ(fetch("tinyshakespeare '" + target().string() + "'"), 0) << output();
    EXPECT_EQ(read_text(fetched_text()), text);
    EXPECT_FALSE(std::filesystem::exists(partial_text()));
  }
}

}  // namespace
}  // namespace lockstep::datasets
