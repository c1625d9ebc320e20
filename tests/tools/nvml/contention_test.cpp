// When a measurement counts as disturbed, when not, and when nobody can tell.
#include "tools/nvml/nvml.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/support/fake_nvml/fake_machine.h"

namespace lockstep::nvml {
namespace {

using lockstep::testing::fake_uuid;
using lockstep::testing::FakeMachine;

constexpr int kStranger = 1 << 30;
constexpr int kOther = kStranger + 1;

// The verdict after samples between which the processes on GPU 0 change.
std::optional<bool> verdict_over(const std::vector<std::vector<int>>& pids_of_samples) {
  FakeMachine machine(2);
  ContentionProbe probe({fake_uuid(0)});
  for (const std::vector<int>& pids : pids_of_samples) {
    machine.set_processes(0, pids);
    probe.sample();
  }
  return probe.verdict();
}

TEST(ContentionProbe, IsFalseWhileOnlyThisJobUsesTheGpu) {
  EXPECT_EQ(verdict_over({{}, {getpid()}}), false);
  EXPECT_EQ(verdict_over({{getppid()}, {getpid(), getppid()}}), false);
}

TEST(ContentionProbe, IsTrueWhenAStrangerUsesItInAnySample) {
  EXPECT_EQ(verdict_over({{getpid()}, {getpid(), kStranger}}), true);
  EXPECT_EQ(verdict_over({{kStranger}, {getpid()}}), true);
  EXPECT_EQ(verdict_over({{getpid()}, {getpid(), kStranger}, {getpid()}}), true);
}

TEST(ContentionProbe, LooksAtItsOwnGpusOnly) {
  FakeMachine machine(2);
  machine.set_processes(0, {getpid()});
  machine.set_processes(1, {kStranger});
  ContentionProbe first({fake_uuid(0)});
  first.sample();
  EXPECT_EQ(first.verdict(), false);
  ContentionProbe both({fake_uuid(0), fake_uuid(1)});
  both.sample();
  EXPECT_EQ(both.verdict(), true);
}

// In a container NVML gives other numbers than the kernel gives this process.
TEST(ContentionProbe, OneProcessAloneIsThisOneByWhateverNumber) {
  EXPECT_EQ(verdict_over({{}, {kStranger}}), false);
}

TEST(ContentionProbe, CannotTellAmongNumbersOfAnotherNamespace) {
  EXPECT_EQ(verdict_over({{}, {kStranger, kOther}}), std::nullopt);
  EXPECT_EQ(verdict_over({{kOther}, {kStranger}}), std::nullopt);
}

TEST(ContentionProbe, CannotTellWhereNotEvenThisProcessIsListed) {
  EXPECT_EQ(verdict_over({{}, {}}), std::nullopt);
  EXPECT_EQ(verdict_over({}), std::nullopt) << "without a sample";
}

TEST(ContentionProbe, CannotTellWithoutNvmlOrItsList) {
  FakeMachine machine(1);
  machine.gpu(0).erase("processes");
  machine.publish();
  ContentionProbe unsupported({fake_uuid(0)});
  unsupported.sample();
  EXPECT_EQ(unsupported.verdict(), std::nullopt);
  ContentionProbe unknown({"GPU-unknown"});
  unknown.sample();
  EXPECT_EQ(unknown.verdict(), std::nullopt);
  FakeMachine::use_library("/nowhere.so");
  ContentionProbe absent({fake_uuid(0)});
  absent.sample();
  EXPECT_EQ(absent.verdict(), std::nullopt);
}

TEST(ContentionProbe, WithoutGpusThereIsNothingToContendFor) {
  FakeMachine::use_library("/nowhere.so");
  ContentionProbe probe({});
  probe.sample();
  EXPECT_EQ(probe.verdict(), false);
}

}  // namespace
}  // namespace lockstep::nvml
