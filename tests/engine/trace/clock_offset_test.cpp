#include "engine/trace/clock_offset.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <vector>

namespace lockstep::trace {
namespace {

TEST(ClockReading, TakesTheShortestQuestionAndTheMiddleOfIt) {
  const ClockReading reading = read_clock(
      std::vector<ClockQuestion>{{1000, 9000, 1900}, {2000, 7100, 2201}, {3000, 9999, 3500}});
  EXPECT_EQ(reading.at_ns, 2100);
  EXPECT_EQ(reading.offset_ns, 5000);
  EXPECT_EQ(reading.error_ns, 101) << "half of 201, rounded up";
}

TEST(ClockReading, IsNeverWrongByMoreThanItsErrorHoweverUnlikeTheTwoWaysAre) {
  constexpr std::int64_t kTrueOffset = -123'456'789'000;
  for (std::int64_t there = 0; there <= 40; ++there) {
    const std::int64_t asked = 5'000'000;
    const ClockReading reading =
        read_clock(std::vector<ClockQuestion>{{asked, asked + there + kTrueOffset, asked + 40}});
    EXPECT_LE(std::abs(reading.offset_ns - kTrueOffset), reading.error_ns) << there;
  }
}

TEST(ClockOffset, OfReadingsThatAgreeIsTheSharperOnesAndHasNoDrift) {
  const ClockOffset offset = clock_offset({1000, 50, 30}, {2000, 70, 5});
  EXPECT_EQ(offset, (ClockOffset{1000, 2000, 70, 0, 50})) << "at the beginning it was 20 at least";
  EXPECT_EQ(offset.at(0), 70);
  EXPECT_EQ(offset.at(1500), 70);
  EXPECT_EQ(clock_offset({1000, 70, 5}, {2000, 50, 30}), (ClockOffset{1000, 2000, 70, 0, 50}));
}

TEST(ClockOffset, FollowsAClockThatRunsFaster) {
  const ClockOffset offset = clock_offset({1000, 500, 10}, {3000, 700, 20});
  EXPECT_EQ(offset, (ClockOffset{1000, 3000, 700, 200, 20}));
  EXPECT_EQ(offset.at(1000), 500);
  EXPECT_EQ(offset.at(2000), 600);
  EXPECT_EQ(offset.at(3000), 700);
  EXPECT_EQ(offset.at(0), 500) << "nothing is known of before";
  EXPECT_EQ(offset.at(9000), 700);
}

TEST(ClockOffset, OfOneClockIsNothing) {
  EXPECT_EQ(ClockOffset{}.at(12'345), 0);
}

}  // namespace
}  // namespace lockstep::trace
