// The token, and the file through which ranks of one host share it.
#include "engine/launch/job_token.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>

#include "tests/support/expect_error.h"
#include "tests/support/temp_folder.h"

namespace lockstep::launch {
namespace {

using testing::expect_error;
using testing::TempFolder;

TEST(JobToken, IsFreshAndLong) {
  EXPECT_EQ(make_token().size(), 64u);
  EXPECT_EQ(make_token().find_first_not_of("0123456789abcdef"), std::string::npos);
  EXPECT_NE(make_token(), make_token());
}

TEST(JobToken, FileIsNamedAfterUserAndPort) {
  EXPECT_EQ(default_token_file({{"XDG_RUNTIME_DIR", "/run/user/7"}}, 29500),
            fmt::format("/run/user/7/lockstep-{}-29500.token", ::geteuid()));
}

TEST(PrivateFile, IsForItsUserAloneAndGoneAfterwards) {
  const TempFolder folder;
  const auto path = folder / "token";
  {
    const PrivateFile file(path, "secret");
    struct stat status {};
    ASSERT_EQ(::stat(path.c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 07777, 0600u);
    EXPECT_EQ(read_private_file(path), "secret");
  }
  EXPECT_EQ(read_private_file(path), std::nullopt);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(PrivateFile, ReplacesAnOlderOneWhoseOwnerLeavesItThen) {
  const TempFolder folder;
  const auto path = folder / "token";
  auto older = std::make_unique<PrivateFile>(path, "older");
  const PrivateFile newer(path, "newer");
  older.reset();
  EXPECT_EQ(read_private_file(path), "newer");
}

TEST(PrivateFile, ReadsNoLinkNoOpenFileAndNothingOdd) {
  const TempFolder folder;
  testing::write_text(folder / "open", "secret");
  ::chmod((folder / "open").c_str(), 0644);
  expect_error(ErrorCode::Io, "mode 644", [&] { read_private_file(folder / "open"); });

  testing::write_text(folder / "mine", "secret");
  ::chmod((folder / "mine").c_str(), 0600);
  EXPECT_EQ(read_private_file(folder / "mine"), "secret");
  std::filesystem::create_symlink(folder / "mine", folder / "link");
  expect_error(ErrorCode::Io, "link", [&] { read_private_file(folder / "link"); });

  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  expect_error(ErrorCode::Io, "plain file", [&] { read_private_file(folder / "pipe"); });

  testing::write_text(folder / "mine", "");
  expect_error(ErrorCode::Io, "empty", [&] { read_private_file(folder / "mine"); });
  testing::write_text(folder / "mine", std::string(5000, 'x'));
  expect_error(ErrorCode::Io, "larger", [&] { read_private_file(folder / "mine"); });
}

TEST(PrivateFile, ReplacesALinkRatherThanWritingThroughIt) {
  const TempFolder folder;
  testing::write_text(folder / "victim", "untouched");
  std::filesystem::create_symlink(folder / "victim", folder / "token");
  const PrivateFile file(folder / "token", "secret");
  EXPECT_EQ(testing::read_text(folder / "victim"), "untouched");
  EXPECT_EQ(read_private_file(folder / "token"), "secret");
}

TEST(PrivateFile, SaysWhyItCannotBeMade) {
  expect_error(ErrorCode::Io, "/nowhere/token", [] { PrivateFile("/nowhere/token", "x"); });
}

}  // namespace
}  // namespace lockstep::launch
