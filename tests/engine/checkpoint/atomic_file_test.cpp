#include "engine/checkpoint/atomic_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/expect_error.h"
#include "tests/support/temp_folder.h"

namespace lockstep::checkpoint {
namespace {

using lockstep::testing::expect_error;
using lockstep::testing::read_text;
using lockstep::testing::TempFolder;
using lockstep::testing::write_text;

std::size_t num_files(const TempFolder& folder) {
  const std::filesystem::directory_iterator files(folder.path());
  return static_cast<std::size_t>(std::distance(begin(files), end(files)));
}

void write(AtomicFile& file, std::string_view text) {
  file.write(std::as_bytes(std::span(text)));
}

TEST(AtomicFile, WritesANewFile) {
  const TempFolder folder;
  write_file_atomically(folder / "new", "weights");
  EXPECT_EQ(read_text(folder / "new"), "weights");
  EXPECT_EQ(num_files(folder), 1u);
}

TEST(AtomicFile, LeavesTheOldContentUntilCommit) {
  const TempFolder folder;
  write_text(folder / "weights", "old");
  AtomicFile file(folder / "weights");
  write(file, "new ");
  write(file, "content");
  EXPECT_EQ(read_text(folder / "weights"), "old");
  file.commit();
  EXPECT_EQ(read_text(folder / "weights"), "new content");
  EXPECT_EQ(num_files(folder), 1u);
}

TEST(AtomicFile, LeavesTheOldContentAndNothingElseWhenNotCommitted) {
  const TempFolder folder;
  write_text(folder / "weights", "old");
  {
    AtomicFile file(folder / "weights");
    write(file, "half of the new");
    EXPECT_EQ(num_files(folder), 2u);
  }
  EXPECT_EQ(read_text(folder / "weights"), "old");
  EXPECT_EQ(num_files(folder), 1u);
}

TEST(AtomicFile, PassesOverATemporaryFileThatAKilledProcessLeft) {
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

TEST(AtomicFile, WritesThroughASymbolicLink) {
  const TempFolder folder;
  write_text(folder / "run-7", "old");
  std::filesystem::create_symlink("run-7", folder / "latest");
  write_file_atomically(folder / "latest", "new");
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "latest"));
  EXPECT_EQ(read_text(folder / "run-7"), "new");
}

TEST(AtomicFile, WritesToADeviceWithoutReplacingIt) {
  write_file_atomically("/dev/null", "gone");
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
}

TEST(AtomicFile, ReportsAFullDisk) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "no /dev/full here";
  expect_error(ErrorCode::Io, "cannot write to '/dev/full'",
               [] { write_file_atomically("/dev/full", "too much"); });
}

TEST(CheckWritable, AcceptsANewFileAndLeavesNothingBehind) {
  const TempFolder folder;
  check_writable(folder / "weights");
  EXPECT_EQ(num_files(folder), 0u);
}

TEST(CheckWritable, LeavesAnExistingFileAsItWas) {
  const TempFolder folder;
  write_text(folder / "weights", "old");
  check_writable(folder / "weights");
  EXPECT_EQ(read_text(folder / "weights"), "old");
  EXPECT_EQ(num_files(folder), 1u);
}

TEST(CheckWritable, DoesNotWaitForTheReaderOfAPipe) {
  const TempFolder folder;
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  check_writable(folder / "pipe");
}

TEST(CheckWritable, NamesTheFolderThatDoesNotExist) {
  const TempFolder folder;
  expect_error(ErrorCode::Io, "missing", [&] { check_writable(folder / "missing/weights"); });
}

TEST(CheckWritable, RefusesAFolder) {
  const TempFolder folder;
  expect_error(ErrorCode::Io, "is a folder", [&] { check_writable(folder.path()); });
  expect_error(ErrorCode::Io, "path of a file", [&] { check_writable(folder / "name/"); });
  expect_error(ErrorCode::Io, "path of a file", [] { check_writable(""); });
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

TEST(CheckWritable, RefusesAPathBelowAFile) {
  expect_error(ErrorCode::Io, "/proc/version", [] { check_writable("/proc/version/weights"); });
}

}  // namespace
}  // namespace lockstep::checkpoint
