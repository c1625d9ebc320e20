// Lines of several ranks on one console. Logs: tests/tools/run_output_test.cpp.
#include "engine/launch/output.h"

#include <gtest/gtest.h>

#include <vector>

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

TEST(LineSplitter, ShowsProgressThatOverwritesItself) {
  EXPECT_EQ(split({"\r10 %", "\r20 %\r", "\ndone\r\n", "\r\n"}),
            Lines({"10 %", "20 %", "done", ""}));
}

}  // namespace
}  // namespace lockstep::launch
