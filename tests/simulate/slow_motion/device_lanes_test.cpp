#include "simulate/slow_motion/device_lanes.h"

#include <gtest/gtest.h>

#include <thread>

namespace lockstep::slow_motion {
namespace {

using std::chrono::milliseconds;

// Times of an unpaced device are plain numbers.
struct Unpaced {
  DeviceLanes lanes{{.interference = {0.5, 0.8}, .pace = Pace::none}};

  std::int64_t begin(Lane lane, std::int64_t earliest, std::int64_t alone) {
    return lanes.begin(lane, Time(earliest), Time(alone)).count();
  }
  std::int64_t finish(Lane lane) { return lanes.finish(lane).count(); }
};

TEST(DeviceLanes, WorkOfOneLaneIsDoneInOrder) {
  Unpaced device;
  EXPECT_EQ(device.begin(Lane::compute, 100, 10), 100);
  EXPECT_EQ(device.finish(Lane::compute), 110);
  EXPECT_EQ(device.begin(Lane::compute, 50, 10), 110);
  EXPECT_EQ(device.finish(Lane::compute), 120);
}

TEST(DeviceLanes, BothLanesTogetherGoOnMoreSlowly) {
  Unpaced device;
  device.begin(Lane::compute, 0, 100);
  device.begin(Lane::comm, 50, 40);  // compute has 50 left
  // comm takes 40 / 0.8 = 50 beside it; in these compute does 25, then 25 alone.
  EXPECT_EQ(device.finish(Lane::comm), 100);
  EXPECT_EQ(device.finish(Lane::compute), 125);
}

TEST(DeviceLanes, ALaneThatEndsLeavesItsSpeed) {
  Unpaced device;
  device.begin(Lane::comm, 0, 100);
  device.begin(Lane::compute, 20, 10);  // until 40; comm has done 20 + 16
  EXPECT_EQ(device.finish(Lane::compute), 40);
  EXPECT_EQ(device.finish(Lane::comm), 104);
}

TEST(DeviceLanes, AThreadSleepsUntilItsWorkIsDone) {
  const Time origin = runtime::now();
  DeviceLanes lanes({.interference = {}, .origin = origin, .patience = std::chrono::hours(1)});
  lanes.begin(Lane::compute, origin, milliseconds(30));
  EXPECT_EQ(lanes.finish(Lane::compute), origin + milliseconds(30));
  EXPECT_GE(runtime::now(), origin + milliseconds(30));
  // Late by less than its patience: it begins when it could have.
  EXPECT_EQ(lanes.begin(Lane::compute, origin, milliseconds(1)), origin + milliseconds(30));
}

TEST(DeviceLanes, LateWorkBeginsWhenItComes) {
  const Time origin = runtime::now();
  DeviceLanes lanes({.interference = {}, .origin = origin, .patience = milliseconds(5)});
  std::this_thread::sleep_for(milliseconds(20));
  EXPECT_GE(lanes.begin(Lane::compute, origin, milliseconds(1)), origin + milliseconds(20));
}

}  // namespace
}  // namespace lockstep::slow_motion
