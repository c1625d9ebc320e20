// The token, and the ways by which ranks come to share it.
#include "engine/launch/job_token.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "engine/launch/port.h"
#include "engine/launch/private_file.h"
#include "engine/launch/token_socket.h"
#include "tests/support/expect_error.h"
#include "tests/support/temp_folder.h"

namespace lockstep::launch {
namespace {

using testing::expect_error;
using testing::TempFolder;

void write_private(const std::filesystem::path& path, std::string_view content) {
  testing::write_text(path, content);
  ::chmod(path.c_str(), 0600);
}

int free_port() {
  return PortReservation(0, PortReservation::Scope::loopback).port();
}

TEST(JobToken, IsFreshAndLong) {
  EXPECT_EQ(make_token().size(), 64u);
  EXPECT_EQ(make_token().find_first_not_of("0123456789abcdef"), std::string::npos);
  EXPECT_NE(make_token(), make_token());
}

TEST(JobToken, IsTheVariablesOrInTheFileThatOneNames) {
  const TempFolder folder;
  const std::string path = (folder / "token").string();
  write_private(path, "sixteen letters.\n");
  EXPECT_EQ(find_token({}), std::nullopt);
  EXPECT_EQ(find_token({{"LOCKSTEP_TOKEN", "of sixteen chars"}}), "of sixteen chars");
  EXPECT_EQ(find_token({{"LOCKSTEP_TOKEN_FILE", path}}), "sixteen letters.");
  EXPECT_EQ(find_token({{"LOCKSTEP_TOKEN_FILE", path}, {"LOCKSTEP_TOKEN", "of sixteen chars"}}),
            "of sixteen chars");
}

TEST(JobToken, ThatCanBeGuessedOrIsNotThereIsRefusedByTheVariablesName) {
  const TempFolder folder;
  const std::string path = (folder / "token").string();
  constexpr const char* kWords =
      "[{}] a job's token has 16 ... 256 bytes, so that nobody guesses it, found 15";
  expect_error(ErrorCode::Usage, fmt::format(kWords, "LOCKSTEP_TOKEN"), [] {
    find_token({{"LOCKSTEP_TOKEN", "of fifteen char"}});
  });
  expect_error(ErrorCode::Io, fmt::format("[LOCKSTEP_TOKEN_FILE] there is no file {}", path), [&] {
    find_token({{"LOCKSTEP_TOKEN_FILE", path}});
  });
  write_private(path, "of fifteen char\n");
  expect_error(ErrorCode::Usage, fmt::format(kWords, "LOCKSTEP_TOKEN_FILE"), [&] {
    find_token({{"LOCKSTEP_TOKEN_FILE", path}});
  });
}

TEST(PrivateFile, ReadsNoLinkNoOpenFileAndNothingOdd) {
  const TempFolder folder;
  testing::write_text(folder / "open", "secret");
  ::chmod((folder / "open").c_str(), 0644);
  expect_error(ErrorCode::Io, "mode 644", [&] { read_private_file(folder / "open"); });

  write_private(folder / "mine", "secret");
  EXPECT_EQ(read_private_file(folder / "mine"), "secret");
  std::filesystem::create_symlink(folder / "mine", folder / "link");
  expect_error(ErrorCode::Io, "link", [&] { read_private_file(folder / "link"); });

  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  expect_error(ErrorCode::Io, "plain file", [&] { read_private_file(folder / "pipe"); });

  testing::write_text(folder / "mine", "");
  expect_error(ErrorCode::Io, "found none", [&] { read_private_file(folder / "mine"); });
  testing::write_text(folder / "mine", std::string(5000, 'x'));
  expect_error(ErrorCode::Io, "found more", [&] { read_private_file(folder / "mine"); });
}

TEST(MeetingFile, IsForItsUserAloneAndGoneAfterwards) {
  const TempFolder folder;
  const auto path = folder / "meet";
  {
    const MeetingFile file(path, "node7", 29500, "secret");
    struct stat status {};
    ASSERT_EQ(::stat(path.c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 07777, 0600u);
    const auto place = read_meeting_file(path);
    ASSERT_TRUE(place);
    EXPECT_EQ(place->host, "node7");
    EXPECT_EQ(place->port, 29500);
    EXPECT_EQ(place->token, "secret");
  }
  EXPECT_FALSE(read_meeting_file(path));
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(MeetingFile, ReplacesAnOlderOneWhoseOwnerLeavesItThen) {
  const TempFolder folder;
  const auto path = folder / "meet";
  auto older = std::make_unique<MeetingFile>(path, "a", 1, "older");
  const MeetingFile newer(path, "a", 1, "newer");
  older.reset();
  EXPECT_EQ(read_meeting_file(path)->token, "newer");
}

TEST(MeetingFile, TakesThePlaceOfNothingElse) {
  const TempFolder folder;
  write_private(folder / "secret", "of the user's");
  testing::write_text(folder / "results", "of the user's");
  std::filesystem::create_symlink(folder / "results", folder / "link");
  std::filesystem::create_directory(folder / "folder");
  for (const char* name : {"secret", "results", "link", "folder"}) {
    expect_error(ErrorCode::Io, "already, and it is no meeting place of Lockstep",
                 [&] { MeetingFile(folder / name, "a", 1, "x"); });
    EXPECT_FALSE(std::filesystem::is_regular_file(folder / name) &&
                 testing::read_text(folder / name) != "of the user's");
  }
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "link"));
  const auto num_left = std::distance(std::filesystem::directory_iterator(folder.path()), {});
  EXPECT_EQ(num_left, 4) << "nothing of ours";
}

TEST(MeetingFile, SaysWhyItCannotBeMade) {
  expect_error(ErrorCode::Io, "/nowhere/meet", [] { MeetingFile("/nowhere/meet", "a", 1, "x"); });
}

TEST(TokenSocket, GivesTheTokenToTheUsersProcessesAsLongAsItIsThere) {
  const int port = free_port();
  EXPECT_EQ(ask_for_token(port), std::nullopt);
  {
    const std::string token = make_token();
    const TokenSocket socket(port, token);
    for (int i = 0; i < 100; ++i) EXPECT_EQ(ask_for_token(port), token);
    EXPECT_EQ(ask_for_token(port + 1), std::nullopt);
    expect_error(ErrorCode::Comm, "cannot hand out a token", [&] { TokenSocket(port, token); });
  }
  EXPECT_EQ(ask_for_token(port), std::nullopt);
}

// Runs fn as another user in a process of its own; says what that returned, or -1.
template <typename Function>
int as_another_user(const Function& fn) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(::setresuid(1, 1, 1) == 0 ? fn() : 99);
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(TokenSocket, GivesItToNobodyElse) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can be somebody else";
  const int port = free_port();
  const TokenSocket socket(port, make_token());
  // The name of root's job, which this user would not ask for by itself.
  const int num_bytes = as_another_user([&] {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::string name = fmt::format("lockstep-0-{}", port);
    std::memcpy(address.sun_path + 1, name.data(), name.size());
    const int asking = ::socket(AF_UNIX, SOCK_STREAM, 0);
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    if (::connect(asking, reinterpret_cast<sockaddr*>(&address), size) != 0) return 98;
    char text[64];
    return static_cast<int>(std::max<ssize_t>(::read(asking, text, sizeof text), 0));
  });
  EXPECT_EQ(num_bytes, 0);
}

}  // namespace
}  // namespace lockstep::launch
