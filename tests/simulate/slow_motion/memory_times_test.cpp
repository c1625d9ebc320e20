#include "simulate/slow_motion/machine.h"

#include <gtest/gtest.h>

#include <array>

namespace lockstep::slow_motion {
namespace {

class Block : public ::testing::Test {
 protected:
  Memory part(std::size_t begin, std::size_t end) const {
    return {bytes.data() + begin, end - begin};
  }
  std::int64_t time(std::size_t begin, std::size_t end) const {
    return times.last_write(part(begin, end)).time.count();
  }
  std::array<std::byte, 100> bytes{};
  MemoryTimes times;
};

using MemoryTimesTest = Block;

TEST_F(MemoryTimesTest, WhatNobodyWroteBelongsToNobody) {
  EXPECT_EQ(times.last_write(part(0, 100)).device, kNoDevice);
  times.write({nullptr, 8}, {Time(5), 1});
  times.write(part(3, 3), {Time(5), 1});
  EXPECT_EQ(times.last_write(part(0, 100)).device, kNoDevice);
  EXPECT_EQ(times.last_write({nullptr, 0}).time.count(), 0);
}

TEST_F(MemoryTimesTest, APartHasTheTimeOfItsWrite) {
  times.write(part(0, 50), {Time(10), 1});
  times.write(part(50, 100), {Time(20), 2});
  EXPECT_EQ(time(0, 50), 10);
  EXPECT_EQ(time(0, 51), 20);
  EXPECT_EQ(time(99, 100), 20);
  EXPECT_EQ(times.last_write(part(10, 20)).device, 1);
  EXPECT_EQ(times.last_write(part(40, 60)).device, 2);
}

TEST_F(MemoryTimesTest, AWriteReplacesWhatItCovers) {
  times.write(part(0, 100), {Time(30), 1});
  times.write(part(20, 40), {Time(10), 2});
  EXPECT_EQ(time(20, 40), 10);
  EXPECT_EQ(time(0, 20), 30);
  EXPECT_EQ(time(19, 21), 30);
  EXPECT_EQ(time(40, 41), 30);
  times.write(part(10, 90), {Time(40), 3});
  EXPECT_EQ(time(0, 10), 30);
  EXPECT_EQ(times.last_write(part(25, 30)).device, 3);
  EXPECT_EQ(times.last_write(part(90, 100)).device, 1);
}

}  // namespace
}  // namespace lockstep::slow_motion
