// The sentence on what bounds a run, on rows made by hand. What can bound it stands in
// page/explained.txt.
#include "tools/report/bound.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::tools {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

// A row whose steps hold these parts, in seconds; what is left of them is nobody's.
RunRow row_of(Mode mode, std::size_t num_devices, std::size_t num_threads,
              const trace::StepBreakdown& parts) {
  RunRow row;
  row.placement.mode = mode;
  row.placement.devices.resize(num_devices);
  row.threads_per_device = num_threads;
  trace::StepBreakdown step = parts;
  step.step = step.data + step.copy + step.forward + step.backward + step.exposed_comm +
              step.optimizer + step.wait + step.host + step.unattributed;
  row.result.breakdown = step;
  row.result.epoch_seconds = {10 * step.step};
  row.result.num_steps = 10;
  row.batch = 64;
  row.epoch_rows = 640;
  return row;
}

RunRow single(std::size_t num_threads) {
  return row_of(Mode::single, 1, num_threads, {.forward = 30, .backward = 60, .optimizer = 10});
}

constexpr std::size_t kCores = 2;

TEST(BoundSentence, NeedsARowWithSeveralDevicesAndABreakdown) {
  EXPECT_THAT(bound_sentence({}, kCores), IsEmpty());
  EXPECT_THAT(bound_sentence({single(2)}, kCores), IsEmpty());
  RunRow unrecorded = row_of(Mode::ddp, 2, 1, {.forward = 1});
  unrecorded.result.breakdown.reset();
  EXPECT_THAT(bound_sentence({single(2), unrecorded}, kCores), IsEmpty());
}

TEST(BoundSentence, ByTheCoresThatDevicesShare) {
  const RunRow row = row_of(Mode::ddp, 8, 1, {.forward = 90, .exposed_comm = 10});
  EXPECT_THAT(bound_sentence({single(2), row}, kCores),
              HasSubstr("limited by the 2 cores that the devices share"));
  EXPECT_THAT(bound_sentence({single(1), row}, 1), HasSubstr("the 1 core that the"));
}

TEST(BoundSentence, IsAboutTheFastestRowThatHasCoresOfItsOwn) {
  const RunRow dp = row_of(Mode::data_parallel, 2, 1, {.forward = 60, .wait = 30});
  const RunRow ddp = row_of(Mode::ddp, 2, 1, {.forward = 60, .exposed_comm = 20});
  const RunRow shared = row_of(Mode::ddp, 4, 1, {.forward = 40});
  EXPECT_THAT(bound_sentence({single(1), dp, ddp, shared}, kCores), StartsWith("ddp x2: "));
}

TEST(BoundSentence, StagesOfAPipelineWaitForEachOther) {
  const RunRow row = row_of(Mode::pipeline, 2, 1, {.forward = 40, .exposed_comm = 20});
  EXPECT_THAT(bound_sentence({single(1), row}, kCores),
              HasSubstr("limited by stages that wait for each other; more --micro-batches"));
}

}  // namespace
}  // namespace lockstep::tools
