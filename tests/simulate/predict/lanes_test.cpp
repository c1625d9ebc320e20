#include "simulate/predict/lanes.h"

#include <gtest/gtest.h>

namespace lockstep::predict {
namespace {

using trace::Category;

Work compute(double seconds, std::vector<std::size_t> after = {}) {
  return {WorkLane::compute, Category::backward, "compute", seconds, 0, std::move(after)};
}
Work comm(double seconds, std::vector<std::size_t> after) {
  return {WorkLane::comm, Category::communication, "comm", seconds, 0, std::move(after)};
}

TEST(Lanes, OneLaneDoesOneThingAtATime) {
  const auto done = run_lanes({compute(1), compute(2)}, {});
  EXPECT_DOUBLE_EQ(done[1].begin, 1);
  EXPECT_DOUBLE_EQ(done[1].end, 3);
}

TEST(Lanes, WorkWaitsForWhatItNeeds) {
  const auto done = run_lanes({compute(1), comm(5, {0}), compute(2), compute(1, {1})}, {});
  EXPECT_DOUBLE_EQ(done[1].begin, 1);
  EXPECT_DOUBLE_EQ(done[2].end, 3);    // beside the communication
  EXPECT_DOUBLE_EQ(done[3].begin, 6);  // behind it
}

TEST(Lanes, OverlapSlowsBothDown) {
  // Beside each other at half speed until the communication is done: 2 s; then 1 s of 2 is left.
  const auto done = run_lanes({compute(0), comm(1, {0}), compute(2)}, {0.5, 0.5});
  EXPECT_DOUBLE_EQ(done[1].end, 2);
  EXPECT_DOUBLE_EQ(done[2].end, 3);
}

TEST(Lanes, CopiesCostTheDeviceNothing) {
  const auto done = run_lanes(
      {compute(0), {WorkLane::up, Category::copy, "copy", 1, 0, {0}}, compute(2)}, {0.5, 0.5});
  EXPECT_DOUBLE_EQ(done[2].end, 2);
}

}  // namespace
}  // namespace lockstep::predict
