// Whether others used the cores: the decision on figures, and the figures of this machine.
#include "engine/runtime/cpu_cores.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace lockstep::runtime {
namespace {

// Ten seconds on two cores.
CoreUse use_of(double own, double total, double stolen, std::optional<double> waiting) {
  return {10, own, total, stolen, waiting};
}

TEST(IsDisturbed, NotWhenAlone) {
  EXPECT_EQ(is_disturbed(use_of(20, 20, 0, 0.0), 2), false);
  EXPECT_EQ(is_disturbed(use_of(20, 20.3, 0, 0.5), 2), false);  // a housekeeper or two
  EXPECT_EQ(is_disturbed(use_of(20, 19.7, 0, 0.5), 2), false);  // counted in hundredths
  EXPECT_EQ(is_disturbed({}, 2), false);
}

// Eight devices on two cores: threads wait, for each other.
TEST(IsDisturbed, NotByItsOwnThreads) {
  EXPECT_EQ(is_disturbed(use_of(20, 20.2, 0, 55.0), 2), false);
}

TEST(IsDisturbed, ByABusyProcess) {
  EXPECT_EQ(is_disturbed(use_of(13, 20, 0, 7.0), 2), true);
  EXPECT_EQ(is_disturbed(use_of(13, 20, 0, std::nullopt), 2), true);
}

TEST(IsDisturbed, ByAnotherVirtualMachine) {
  EXPECT_EQ(is_disturbed(use_of(15, 15, 5, 2.0), 2), true);
}

// It computes on cores that nobody here wanted.
TEST(IsDisturbed, NotByAProcessThatLeavesCoresEnough) {
  EXPECT_EQ(is_disturbed(use_of(10, 20, 0, 0.01), 1), false);
}

TEST(IsDisturbed, NotByAFewTicksOfAShortRow) {
  EXPECT_EQ(is_disturbed({0.2, 0.3, 0.35, 0, 0.1}, 2), false);
  EXPECT_EQ(is_disturbed({0.2, 0.2, 0.4, 0, 0.1}, 2), true);
}

TEST(IsDisturbed, NobodyKnowsWhereTheKernelTellsNothing) {
  EXPECT_EQ(is_disturbed(use_of(20, 0, 0, 0.0), 2), std::nullopt);
}

TEST(CoreProbe, CountsTheWorkOfThisProcess) {
  CoreProbe probe;
  probe.sample();
  const double before = own_cpu_seconds();
  std::atomic<bool> is_over = false;
  std::thread other([&] {
    while (!is_over) {
    }
  });
  while (own_cpu_seconds() < before + 0.2) {
  }
  probe.sample();
  is_over = true;
  other.join();
  const CoreUse use = probe.use();
  EXPECT_GE(use.own_seconds, 0.2);
  EXPECT_GT(use.wall_seconds, 0.05);
  EXPECT_GE(use.stolen_seconds, 0);
}

}  // namespace
}  // namespace lockstep::runtime
