#include "engine/comm/link.h"

#include <gtest/gtest.h>

namespace lockstep::comm {
namespace {

// A port whose times are plain numbers.
struct Numbers {
  std::int64_t occupy(std::int64_t earliest, std::int64_t length) {
    return port.occupy(Time(earliest), Time(length)).count();
  }
  Port port;
};

TEST(Port, AMessageThatMeetsNoOtherGoesAtOnce) {
  Numbers port;
  EXPECT_EQ(port.occupy(100, 10), 110);
  EXPECT_EQ(port.occupy(200, 10), 210);
}

TEST(Port, MessagesThatAreReadyTogetherGoOneAfterTheOther) {
  Numbers port;
  EXPECT_EQ(port.occupy(100, 10), 110);
  EXPECT_EQ(port.occupy(100, 20), 130);
  EXPECT_EQ(port.occupy(100, 5), 135);
  EXPECT_EQ(port.occupy(120, 5), 140);
}

TEST(Port, AnEarlyMessageIsNotHeldUpByALateOneThatWasAskedForFirst) {
  Numbers port;
  EXPECT_EQ(port.occupy(100, 10), 110);
  EXPECT_EQ(port.occupy(50, 10), 60);
}

TEST(Port, AMessageFillsTheFirstGapThatHoldsIt) {
  Numbers port;
  port.occupy(100, 10);
  port.occupy(125, 10);
  port.occupy(140, 10);
  EXPECT_EQ(port.occupy(100, 15), 125);  // 110 ... 125
  EXPECT_EQ(port.occupy(100, 6), 156);   // 135 ... 140 is too short
  EXPECT_EQ(port.occupy(100, 5), 140);
}

TEST(Port, AMessageWithoutBytesTakesNoTime) {
  Numbers port;
  EXPECT_EQ(port.occupy(100, 0), 100);
  EXPECT_EQ(port.occupy(100, 10), 110);
}

TEST(Port, WhatIsLongPastIsForgottenAndStaysTaken) {
  Numbers port;
  for (std::int64_t i = 0; i < 1000; ++i) EXPECT_EQ(port.occupy(20 * i, 10), 20 * i + 10);
  EXPECT_GT(port.occupy(0, 10), 20 * 500);  // there were gaps before, but nobody knows
  EXPECT_EQ(port.occupy(20 * 1000, 10), 20 * 1000 + 10);
}

}  // namespace
}  // namespace lockstep::comm
