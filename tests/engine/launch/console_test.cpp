// Lines of several ranks on one console, and logs that cannot be written.
#include "engine/launch/console.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <vector>

#include "engine/launch/log_file.h"
#include "tests/support/expect_error.h"
#include "tests/support/temp_folder.h"

namespace lockstep::launch {
namespace {

using Lines = std::vector<std::string>;

Lines split(const std::vector<std::string>& pieces) {
  Lines lines;
  LineSplitter splitter;
  const auto collect = [&](std::string_view line) { lines.emplace_back(line); };
  for (const std::string& piece : pieces) splitter.add(piece, collect);
  splitter.finish(collect);
  return lines;
}

TEST(LineSplitter, PutsLinesTogetherHoweverTheyArrive) {
  EXPECT_EQ(split({"one\ntw", "", "o\n\nthree"}), Lines({"one", "two", "", "three"}));
  EXPECT_EQ(split({"a\n", "b\n"}), Lines({"a", "b"}));
  EXPECT_EQ(split({}), Lines());
}

TEST(LineSplitter, BoundsALineThatNeverEnds) {
  const Lines lines = split({std::string(100000, 'x'), std::string(100000, 'x')});
  EXPECT_EQ(lines.size(), 4u);
  for (const std::string& line : lines) EXPECT_LE(line.size(), 65536u);
}

TEST(Console, DropsWhatNobodyWillRead) {
  Console console;
  console.print(1, "[0] ", "one");
  EXPECT_EQ(console.num_bytes(), 8u);
  console.give_up();
  console.print(2, "[0] ", "two");
  EXPECT_TRUE(console.is_empty());
  EXPECT_EQ(console.num_bytes(), 0u);
}

TEST(LogFile, MakesItsFoldersAndKeepsWhatItGot) {
  const testing::TempFolder folder;
  LogFile log((folder / "attempt_0/3/stdout.log").string());
  EXPECT_EQ(log.write("one\n"), 0);
  EXPECT_EQ(log.write("two\n"), 0);
  EXPECT_EQ(testing::read_text(folder / "attempt_0/3/stdout.log"), "one\ntwo\n");
}

TEST(LogFile, ReportsAFullDiskOnceAndCloses) {
  LogFile log("/dev/full");
  EXPECT_EQ(log.write("x"), ENOSPC);
  EXPECT_FALSE(log.is_open());
}

TEST(LogFile, SaysWhyItCannotBeMade) {
  testing::expect_error(ErrorCode::Io, "/proc/nowhere/log", [] { LogFile("/proc/nowhere/log"); });
}

}  // namespace
}  // namespace lockstep::launch
