// How the table and the run file say that a row was not measured alone.
#include "tools/report/contention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/tools/run_lockstep.h"

namespace lockstep::tools {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

RunRow row_with(std::optional<bool> contended) {
  RunRow row;
  row.contended = contended;
  return row;
}

TEST(Contention, AnUndisturbedRowHasNoMarkAndNoNote) {
  EXPECT_EQ(contention_mark(row_with(false)), "");
  EXPECT_THAT(contention_notes({row_with(false), row_with(false)}), IsEmpty());
}

TEST(Contention, ADisturbedRowIsMarkedAndTheMarkIsExplainedOnce) {
  EXPECT_EQ(contention_mark(row_with(true)), " contended");
  EXPECT_THAT(contention_notes({row_with(false), row_with(true), row_with(true)}),
              ElementsAre(HasSubstr("contended: another process used the GPU")));
}

TEST(Contention, WhatNobodyCanTellIsNeitherYesNorNo) {
  EXPECT_EQ(contention_mark(row_with(std::nullopt)), " contended?");
  EXPECT_THAT(contention_notes({row_with(std::nullopt), row_with(true)}),
              ElementsAre(HasSubstr("contended: "), HasSubstr("NVML does not tell")));
}

TEST(Contention, NothingIsWatchedOnTheCpu) {
  nvml::ContentionProbe probe = watch({Device{DeviceType::cpu, 0}, Device{DeviceType::cpu, 1}});
  EXPECT_EQ(probe.verdict(), false);
}

TEST(Contention, TheRunFileHoldsTheVerdict) {
  const lockstep::testing::TempFolder folder;
  lockstep::testing::expect_success(lockstep::testing::run_lockstep(
      lockstep::testing::words("train --device cpu --steps 1 --json run.json"), folder.path()));
  EXPECT_EQ(lockstep::testing::read_json(folder / "run.json")["rows"][0]["contended"], false);
}

}  // namespace
}  // namespace lockstep::tools
