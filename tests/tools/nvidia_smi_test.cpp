// nvidia-smi may tell everything, or little, or be missing: Lockstep reads what there is. Also:
// when a measurement on GPUs counts as disturbed.
#include "tools/devices/nvidia_smi.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pwd.h>
#include <unistd.h>

#include "tests/support/fake_nvidia_smi/fake_machine.h"

namespace lockstep::tools {
namespace {

using lockstep::testing::fake_uuid;
using lockstep::testing::FakeMachine;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::size_t kGib = std::size_t{1} << 30;
constexpr int kStranger = 1 << 30;  // beyond the largest number that Linux gives
constexpr int kOther = kStranger + 1;

TEST(ReadMachine, TellsWhatNvidiaSmiTells) {
  FakeMachine machine(2);
  machine.set_processes(1, {41, 42});
  const MachineGpus seen = read_machine();
  EXPECT_EQ(seen.problem, "");
  EXPECT_EQ(seen.driver, "580.65.06");
  EXPECT_EQ(seen.nvml, "580.65");
  EXPECT_EQ(seen.newest_cuda, "13.0");
  ASSERT_EQ(seen.gpus.size(), 2u);
  const GpuStatus& gpu = seen.gpus[1];
  EXPECT_EQ(gpu.index, 1u);
  EXPECT_EQ(gpu.name, "NVIDIA H200");
  EXPECT_EQ(gpu.uuid, fake_uuid(1));
  EXPECT_EQ(gpu.pci_bus_id, "00000000:11:00.0");
  EXPECT_EQ(gpu.compute_capability, "9.0");
  EXPECT_EQ(gpu.utilization_percent, 2);
  EXPECT_EQ(gpu.temperature_celsius, 31);
  EXPECT_EQ(gpu.power_watts, 75.5);
  EXPECT_EQ(gpu.power_limit_watts, 700);
  EXPECT_EQ(gpu.memory->total_bytes, 16 * kGib);
  EXPECT_EQ(gpu.memory->used_bytes, kGib);
  EXPECT_EQ(gpu.memory->free_bytes, 15 * kGib - kGib / 2) << "the driver keeps some";
  EXPECT_THAT(*gpu.processes, ElementsAre(GpuProcess{41, kGib}, GpuProcess{42, kGib}));
  EXPECT_TRUE(seen.gpus[0].processes->empty());
}

TEST(ReadMachine, AValueThatIsNotSupportedIsAbsentAndTheOthersAreThere) {
  FakeMachine machine(1);
  for (const char* key : {"memory", "power.draw", "processes", "pci.bus_id"}) {
    machine.gpu(0).erase(key);
  }
  machine.publish();
  const GpuStatus gpu = read_machine().gpus.at(0);
  EXPECT_FALSE(gpu.memory || gpu.power_watts || gpu.processes);
  EXPECT_EQ(gpu.pci_bus_id, "");
  EXPECT_EQ(gpu.temperature_celsius, 30);
  EXPECT_TRUE(gpu.power_limit_watts);
}

TEST(ReadMachine, NamesLinksAndPeerAccessByDirection) {
  FakeMachine machine(3);
  machine.description["paths"][0][2] = "SYS";
  machine.description["reads"][0][1] = "CNS";
  machine.publish();
  const auto links = read_machine().links;
  EXPECT_EQ(links[0][1].path, "NV18");
  EXPECT_EQ(links[0][2].path, "SYS");
  EXPECT_EQ(links[0][1].peer_access, false);
  EXPECT_EQ(links[1][0].peer_access, true);
}

TEST(ReadMachine, NamesTheSlicesOfAGpu) {
  FakeMachine machine(2);
  machine.gpu(1)["slices"] = {"MIG-11aa", "MIG-22bb"};
  machine.publish();
  EXPECT_THAT(read_machine().gpus.at(1).slices, ElementsAre("MIG-11aa", "MIG-22bb"));
}

TEST(ReadMachine, WithoutAnswerFromNvidiaSmiSaysWhy) {
  FakeMachine machine(1);
  const auto problem_of = [&](int exit_code, const char* says) {
    machine.description["fails"] = {{"exit_code", exit_code}, {"says", says}};
    machine.publish();
    return read_machine().problem;
  };
  EXPECT_EQ(problem_of(9, "NVIDIA-SMI has failed"), "nvidia-smi says 'NVIDIA-SMI has failed'");
  EXPECT_EQ(problem_of(124, ""), "nvidia-smi did not answer within 10 s");
  FakeMachine::hide_nvidia_smi();
  EXPECT_THAT(read_machine().problem, HasSubstr("no nvidia-smi in PATH"));
}

TEST(FindOwner, NamesUserAndCommand) {
  const auto owner = find_owner(getpid());
  ASSERT_TRUE(owner);
  const passwd* user = getpwuid(getuid());
  EXPECT_EQ(owner->user, user ? user->pw_name : std::to_string(getuid()));
  EXPECT_THAT(owner->command, HasSubstr("devices_tests"));
  EXPECT_FALSE(find_owner(kStranger));
}

TEST(AreRelatives, AreAncestorsAndDescendants) {
  EXPECT_TRUE(are_relatives(getpid(), getpid()));
  EXPECT_TRUE(are_relatives(getppid(), getpid()));
  EXPECT_FALSE(are_relatives(kStranger, getpid()));
}

// The verdict after samples between which the processes on GPU 0 change.
std::optional<bool> verdict_over(const std::vector<std::vector<int>>& pids_of_samples) {
  FakeMachine machine(2);
  GpuContentionProbe probe({fake_uuid(0)});
  for (const std::vector<int>& pids : pids_of_samples) {
    machine.set_processes(0, pids);
    probe.sample();
  }
  return probe.verdict();
}

TEST(GpuContentionProbe, IsFalseWhileOnlyThisJobUsesTheGpu) {
  EXPECT_EQ(verdict_over({{}, {getpid()}}), false);
  EXPECT_EQ(verdict_over({{getppid()}, {getpid(), getppid()}}), false);
}

TEST(GpuContentionProbe, IsTrueWhenAStrangerUsesItInAnySample) {
  EXPECT_EQ(verdict_over({{getpid()}, {getpid(), kStranger}}), true);
  EXPECT_EQ(verdict_over({{kStranger}, {getpid()}}), true);
}

TEST(GpuContentionProbe, LooksAtItsOwnGpusOnly) {
  FakeMachine machine(2);
  machine.set_processes(0, {getpid()});
  machine.set_processes(1, {kStranger});
  GpuContentionProbe first({fake_uuid(0)});
  first.sample();
  EXPECT_EQ(first.verdict(), false);
  GpuContentionProbe both({fake_uuid(0), fake_uuid(1)});
  both.sample();
  EXPECT_EQ(both.verdict(), true);
}

// In a container nvidia-smi gives other numbers than the kernel gives this process.
TEST(GpuContentionProbe, OneProcessAloneIsThisOneByWhateverNumber) {
  EXPECT_EQ(verdict_over({{}, {kStranger}}), false);
}

TEST(GpuContentionProbe, CannotTellAmongNumbersOfAnotherNamespace) {
  EXPECT_EQ(verdict_over({{}, {kStranger, kOther}}), std::nullopt);
  EXPECT_EQ(verdict_over({{kOther}, {kStranger}}), std::nullopt);
}

TEST(GpuContentionProbe, CannotTellWhereNotEvenThisProcessIsListed) {
  EXPECT_EQ(verdict_over({{}, {}}), std::nullopt);
  EXPECT_EQ(verdict_over({}), std::nullopt) << "without a sample";
}

TEST(GpuContentionProbe, CannotTellWithoutNvidiaSmiOrItsList) {
  FakeMachine machine(1);
  machine.gpu(0).erase("processes");
  machine.publish();
  const auto verdict_of = [](const std::string& uuid) {
    GpuContentionProbe probe({uuid});
    probe.sample();
    return probe.verdict();
  };
  EXPECT_EQ(verdict_of(fake_uuid(0)), std::nullopt);
  EXPECT_EQ(verdict_of("GPU-unknown"), std::nullopt);
  FakeMachine::hide_nvidia_smi();
  EXPECT_EQ(verdict_of(fake_uuid(0)), std::nullopt);
}

TEST(GpuContentionProbe, WithoutGpusThereIsNothingToContendFor) {
  GpuContentionProbe probe({});
  probe.sample();
  EXPECT_EQ(probe.verdict(), false);
}

}  // namespace
}  // namespace lockstep::tools
