#include "engine/core/files.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>

#include "tests/support/expect_error.h"
#include "tests/support/temp_folder.h"

namespace lockstep {
namespace {

using lockstep::testing::expect_error;
using lockstep::testing::read_text;
using lockstep::testing::TempFolder;
using lockstep::testing::write_text;

std::size_t num_files(const TempFolder& folder) {
  const std::filesystem::directory_iterator files(folder.path());
  return static_cast<std::size_t>(std::distance(begin(files), end(files)));
}

TEST(AtomicFile, LeavesTheOldContentUntilCommit) {
  const TempFolder folder;
  write_text(folder / "weights", "old");
  AtomicFile file(folder / "weights");
  file.write("new ");
  file.write("content");
  EXPECT_EQ(read_text(folder / "weights"), "old");
  file.commit();
  EXPECT_EQ(read_text(folder / "weights"), "new content");
  EXPECT_EQ(num_files(folder), 1u);
}

TEST(AtomicFile, LeavesTheOldContentWhenNotCommitted) {
  const TempFolder folder;
  write_text(folder / "weights", "old");
  {
    AtomicFile file(folder / "weights");
    file.write("half of the new");
    EXPECT_EQ(num_files(folder), 2u);
  }
  EXPECT_EQ(read_text(folder / "weights"), "old");
  EXPECT_EQ(num_files(folder), 1u);
}

TEST(AtomicFile, PassesOverAFileOfAKilledProcess) {
  const TempFolder folder;
  for (int i = 0; i < 100; ++i) {
    write_text(folder / fmt::format("weights.partial-{}-{}", ::getpid(), i), "left over");
  }
  write_file_atomically(folder / "weights", "new");
  EXPECT_EQ(read_text(folder / "weights"), "new");
  EXPECT_EQ(num_files(folder), 101u);
}

TEST(AtomicFile, KeepsThePermissionsOfTheFileItReplaces) {
  const TempFolder folder;
  write_text(folder / "private", "old");
  ASSERT_EQ(::chmod((folder / "private").c_str(), 0600), 0);
  write_file_atomically(folder / "private", "new");
  EXPECT_EQ(std::filesystem::status(folder / "private").permissions(),
            std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
}

TEST(AtomicFile, MakesTheFileThatALinkNames) {
  const TempFolder folder;
  std::filesystem::create_directory(folder / "runs");
  std::filesystem::create_symlink("runs/8", folder / "next");
  std::filesystem::create_symlink(folder / "next", folder / "latest");
  write_file_atomically(folder / "latest", "new");
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "latest"));
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "next"));
  EXPECT_EQ(read_text(folder / "runs/8"), "new");
}

TEST(AtomicFile, RefusesLinksInACircle) {
  const TempFolder folder;
  std::filesystem::create_symlink("b", folder / "a");
  std::filesystem::create_symlink("a", folder / "b");
  expect_error(ErrorCode::Io, "lead in a circle", [&] { AtomicFile file(folder / "a"); });
}

// The soft limit of this process, for as long as this lives.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t num_bytes) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{num_bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() { ::setrlimit(RLIMIT_FSIZE, &before_); }

 private:
  rlimit before_{};
};

TEST(AtomicFile, KeepsTheOldFileWhereSizesAreLimited) {
  const TempFolder folder;
  write_text(folder / "weights", "old");
  const FileSizeLimit limit(1000);
  write_file_atomically(folder / "weights", std::string(1000, 'w'));
  expect_error(ErrorCode::Io, "larger than the 1000 bytes", [&] {
    AtomicFile file(folder / "weights");
    file.write(std::string(600, 'n'));
    file.write(std::string(401, 'n'));
  });
  EXPECT_EQ(read_text(folder / "weights"), std::string(1000, 'w'));
  EXPECT_EQ(num_files(folder), 1u);
}

TEST(AtomicFile, WritesToAPipeThatALinkNames) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  write_file_atomically(fmt::format("/proc/self/fd/{}", ends[1]), "text");
  char text[5] = {};
  EXPECT_EQ(::read(ends[0], text, 4), 4);
  EXPECT_STREQ(text, "text");
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST(AtomicFile, ReportsAFullDisk) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "no /dev/full here";
  expect_error(ErrorCode::Io, "cannot write to '/dev/full'",
               [] { write_file_atomically("/dev/full", "too much"); });
}

TEST(IsSameFile, KnowsAFileByEverySpellingAndLink) {
  const TempFolder folder;
  std::filesystem::create_directory(folder / "sub");
  std::filesystem::create_directory_symlink("sub", folder / "other_name_of_sub");
  std::filesystem::create_symlink("sub/file", folder / "link");
  const std::vector<std::filesystem::path> names = {folder / "sub/file", folder / "sub/./file",
                                                    folder / "sub/../sub/file", folder / "link",
                                                    folder / "other_name_of_sub/file"};
  const auto expect_same = [&] {
    for (const auto& a : names) {
      for (const auto& b : names) EXPECT_TRUE(is_same_file(a, b)) << a << " and " << b;
      EXPECT_FALSE(is_same_file(a, folder / "file")) << a;
    }
  };
  expect_same();
  write_text(folder / "sub/file", "now it exists");
  expect_same();
  write_text(folder / "file", "another");
  expect_same();
  std::filesystem::create_hard_link(folder / "sub/file", folder / "hard link");
  EXPECT_TRUE(is_same_file(folder / "hard link", folder / "link"));
}

TEST(CheckWritable, AcceptsANewFileAndLeavesNothingBehind) {
  const TempFolder folder;
  check_writable(folder / "weights");
  EXPECT_EQ(num_files(folder), 0u);
}

TEST(CheckWritable, DoesNotWaitForAPipesReader) {
  const TempFolder folder;
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  check_writable(folder / "pipe");
}

TEST(CheckWritable, RefusesWhatTheUserMayNotWrite) {
  if (::geteuid() == 0) GTEST_SKIP() << "root may write everywhere";
  const TempFolder folder;
  write_text(folder / "weights", "old");
  ASSERT_EQ(::chmod((folder / "weights").c_str(), 0400), 0);
  expect_error(ErrorCode::Io, "denied", [&] { check_writable(folder / "weights"); });
  ASSERT_EQ(::chmod(folder.path().c_str(), 0500), 0);
  expect_error(ErrorCode::Io, "denied", [&] { check_writable(folder / "other"); });
  ASSERT_EQ(::chmod(folder.path().c_str(), 0700), 0);
}

TEST(CheckWritable, RefusesPathsThatNameNoFile) {
  const TempFolder folder;
  const std::pair<std::filesystem::path, const char*> mistakes[] = {
      {folder / "missing/weights", "missing"},    {folder.path(), "is a folder"},
      {folder / "name/", "path of a file"},       {"", "path of a file"},
      {"/proc/version/weights", "/proc/version"},
  };
  for (const auto& [path, words] : mistakes) {
    expect_error(ErrorCode::Io, words, [&path = path] { check_writable(path); });
  }
}

TEST(InputFile, IsReadFrontToBackAndAgain) {
  const TempFolder folder;
  write_text(folder / "file", "abcdef");
  InputFile file(folder / "file", "test");
  EXPECT_EQ(file.num_bytes(), 6u);
  std::array<char, 4> bytes{};
  EXPECT_EQ(file.read(std::as_writable_bytes(std::span(bytes))), 4u);
  EXPECT_EQ(file.read(std::as_writable_bytes(std::span(bytes))), 2u);
  EXPECT_EQ(file.read(std::as_writable_bytes(std::span(bytes))), 0u);
  file.rewind();
  file.read_exactly(std::as_writable_bytes(std::span(bytes)));
  EXPECT_EQ(std::string_view(bytes.data(), 4), "abcd");
  expect_error(ErrorCode::Io, "ends before its data does",
               [&] { file.read_exactly(std::as_writable_bytes(std::span(bytes))); });
}

TEST(InputFile, IsNamedWhereItCannotBeRead) {
  const TempFolder folder;
  const auto open = [](const std::filesystem::path& path) { InputFile file(path, "test"); };
  expect_error(ErrorCode::Io, "[test] cannot open '", [&] { open(folder / "none"); });
  expect_error(ErrorCode::Io, "none': No such file", [&] { open(folder / "none"); });
  expect_error(ErrorCode::Io, "' is a folder", [&] { open(folder.path()); });
  expect_error(ErrorCode::Io, "'/dev/zero' is a pipe or a device", [&] { open("/dev/zero"); });
}

TEST(InputFile, DoesNotWaitForAPipesWriter) {
  const TempFolder folder;
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  expect_error(ErrorCode::Io, "is a pipe", [&] { read_text_file(folder / "pipe", "test"); });
}

}  // namespace
}  // namespace lockstep
