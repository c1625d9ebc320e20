// datasets/fetch.sh with a folder as its mirror, so that no test needs the network. All files of
// the mirror hold a text that is made here, and the script that runs knows its checksum.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "tests/support/temp_folder.h"

namespace lockstep::datasets {
namespace {

using lockstep::testing::read_text;
using lockstep::testing::TempFolder;
using lockstep::testing::write_text;
using ::testing::HasSubstr;

constexpr std::array kFiles{"train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz",
                            "t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"};

std::string made_text() {
  std::string text;
  for (int line = 0; text.size() < 100'000; ++line) text += fmt::format("line {}\n", line);
  return text;
}

class FetchScript : public ::testing::Test {
 protected:
  void SetUp() override {
    if (std::system("command -v curl >/dev/null") != 0) GTEST_SKIP() << "curl is not installed";
    write_text(folder_ / "text", text_);
    ASSERT_EQ(run(fmt::format("sha256sum <'{0}/text' >'{0}/output'", folder())), 0);
    // "<checksum> <file>" stands on a line of its own.
    ASSERT_EQ(run(fmt::format("sed -E 's/^[0-9a-f]{{64}} /{} /' <'{}' >'{}/fetch.sh'",
                              output().substr(0, 64), LOCKSTEP_SOURCE_DIR "/datasets/fetch.sh",
                              folder())),
              0);
  }

  // Makes all files of the mirror hold this text.
  void fill_mirror(const std::string& text) {
    std::filesystem::create_directories(folder_ / "mirror/mnist");
    for (const char* file : kFiles) write_text(folder_ / "mirror/mnist" / file, text);
  }
  // Runs the script; its output is in output() afterwards.
  int fetch(const std::string& name) {
    return run(
        fmt::format("LOCKSTEP_MIRROR='file://{0}/mirror' sh '{0}/fetch.sh' {1} '{0}/target' "
                    ">'{0}/output' 2>&1",
                    folder(), name));
  }
  std::string output() const { return read_text(folder_ / "output"); }

  std::filesystem::path fetched(const std::string& file) const {
    return folder_ / "target/mnist" / file;
  }
  std::filesystem::path partial(const std::string& file) const {
    return fetched(file + ".partial");
  }

  const std::string text_ = made_text();

 private:
  static int run(const std::string& command) {
    const int status = std::system(command.c_str());
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  std::string folder() const { return folder_.path().string(); }

  TempFolder folder_;
};

TEST_F(FetchScript, FailsInOneLineWhenNothingCanBeDownloaded) {
  for (const char* name : {"mnist", "fashion-mnist"}) {
    EXPECT_EQ(fetch(name), 1);
    EXPECT_THAT(output(), HasSubstr("cannot download"));
    EXPECT_EQ(std::ranges::count(output(), '\n'), 1) << output();
  }
}

TEST_F(FetchScript, KeepsNothingOfAFileWithAnotherChecksum) {
  fill_mirror("To be, or not to be");
  EXPECT_EQ(fetch("mnist"), 1);
  EXPECT_THAT(output(), HasSubstr("does not have the expected SHA-256"));
  EXPECT_FALSE(std::filesystem::exists(fetched(kFiles[0])));
  EXPECT_FALSE(std::filesystem::exists(partial(kFiles[0])));
}

TEST_F(FetchScript, FetchesOnceAndKeepsWhatIsWhole) {
  fill_mirror(text_);
  ASSERT_EQ(fetch("mnist"), 0) << output();
  for (const char* file : kFiles) EXPECT_EQ(read_text(fetched(file)), text_) << file;
  EXPECT_EQ(fetch("mnist"), 0);
  EXPECT_THAT(output(), HasSubstr("already there"));
  EXPECT_THAT(output(), ::testing::Not(HasSubstr(": fetched")));
}

TEST_F(FetchScript, ContinuesAnInterruptedDownloadAndReplacesARottenOne) {
  fill_mirror(text_);
  for (const std::string& rest :
       {text_.substr(0, text_.size() / 2), std::string("rotten"), text_ + "!"}) {
    std::filesystem::remove_all(fetched(""));
    std::filesystem::create_directories(fetched(""));
    write_text(partial(kFiles[1]), rest);
    ASSERT_EQ(fetch("mnist"), 0) << output();
    for (const char* file : kFiles) {
      EXPECT_EQ(read_text(fetched(file)), text_) << file;
      EXPECT_FALSE(std::filesystem::exists(partial(file))) << file;
    }
  }
}

}  // namespace
}  // namespace lockstep::datasets
