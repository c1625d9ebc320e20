// How busy a device was, on recordings made by hand.
#include "tools/report/step_statistics.h"

#include <gtest/gtest.h>

namespace lockstep::tools {
namespace {

using trace::Category;
using trace::Lane;

struct Spans {
  trace::Recording recording;

  trace::Span& add(int track, std::int64_t begin, std::int64_t end, Lane lane, Category category) {
    recording.spans.push_back({.begin_ns = begin,
                               .end_ns = end,
                               .rank = track,
                               .thread = static_cast<std::uint32_t>(track),
                               .lane = lane,
                               .category = category});
    return recording.spans.back();
  }
  void step(int track, std::int64_t begin, std::int64_t end) {
    add(track, begin, end, Lane::host, Category::step);
  }
};

TEST(BusyFraction, CountsTheCpuTimeOfComputationNotItsWallTime) {
  Spans spans;
  spans.step(0, 0, 100);
  spans.add(0, 0, 100, Lane::compute, Category::forward).cpu_ns = 25;
  EXPECT_EQ(busy_fraction(spans.recording, 0), 0.25);
}

TEST(BusyFraction, SpinningInAWaitIsNotComputing) {
  Spans spans;
  spans.step(0, 0, 100);
  spans.add(0, 0, 80, Lane::compute, Category::backward).cpu_ns = 80;
  spans.add(0, 30, 60, Lane::host, Category::wait).cpu_ns = 30;
  EXPECT_EQ(busy_fraction(spans.recording, 0), 0.5);
}

TEST(BusyFraction, SpansWithoutCpuTimeAreInsideOthersAndCountNothing) {
  Spans spans;
  spans.step(0, 0, 100);
  spans.add(0, 0, 60, Lane::compute, Category::forward).cpu_ns = 60;
  spans.add(0, 0, 60, Lane::compute, Category::op);
  spans.add(0, 60, 100, Lane::comm, Category::communication);
  EXPECT_EQ(busy_fraction(spans.recording, 0), 0.6);
}

TEST(BusyFraction, WhatIsOutsideOfStepsDoesNotCount) {
  Spans spans;
  spans.step(0, 100, 200);
  spans.step(0, 300, 400);
  spans.add(0, 0, 50, Lane::compute, Category::op).cpu_ns = 50;      // before
  spans.add(0, 150, 250, Lane::compute, Category::op).cpu_ns = 100;  // half of it inside
  spans.add(0, 390, 400, Lane::compute, Category::op).cpu_ns = 10;
  EXPECT_EQ(busy_fraction(spans.recording, 0), 0.3);
}

TEST(BusyFraction, OfAGpuIsTheTimeOfItsOwnSpans) {
  Spans spans;
  spans.step(0, 0, 1000);  // the host's, which goes on
  spans.add(0, 0, 900, Lane::compute, Category::forward).cpu_ns = 900;
  const auto on_device = [&](std::int64_t begin, std::int64_t end, Lane lane, Category category) {
    spans.add(0, begin, end, lane, category).thread = trace::kDeviceThread;
  };
  on_device(0, 200, Lane::host, Category::step);
  on_device(0, 150, Lane::compute, Category::forward);
  on_device(100, 150, Lane::compute, Category::wait);
  on_device(0, 200, Lane::comm, Category::communication);
  EXPECT_EQ(busy_fraction(spans.recording, 0), 0.5);
}

}  // namespace
}  // namespace lockstep::tools
