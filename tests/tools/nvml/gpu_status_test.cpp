// Reads a machine's GPUs with a library that tells everything, or little, or is missing.
#include "tools/nvml/nvml.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/fake_nvml/fake_machine.h"

namespace lockstep::nvml {
namespace {

using lockstep::testing::FakeMachine;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::size_t kGib = std::size_t{1} << 30;

TEST(ReadGpus, TellsWhatTheLibraryTells) {
  FakeMachine machine(2);
  machine.set_processes(1, {41, 42});
  const Library library;
  ASSERT_TRUE(library.available()) << library.problem();
  const std::vector<GpuStatus> gpus = read_gpus(library);
  ASSERT_EQ(gpus.size(), 2u);
  const GpuStatus& gpu = gpus[1];
  EXPECT_EQ(gpu.index, 1u);
  EXPECT_EQ(gpu.name, "NVIDIA H200");
  EXPECT_EQ(gpu.uuid, lockstep::testing::fake_uuid(1));
  EXPECT_EQ(gpu.pci_bus_id, "00000000:11:00.0");
  EXPECT_EQ(gpu.compute_capability->major, 9);
  EXPECT_EQ(gpu.compute_capability->minor, 0);
  EXPECT_EQ(gpu.utilization_percent, 2u);
  EXPECT_EQ(gpu.temperature_celsius, 31u);
  EXPECT_EQ(gpu.power_watts, 75.5);
  EXPECT_EQ(gpu.power_limit_watts, 700);
  EXPECT_THAT(*gpu.processes, ElementsAre(GpuProcess{41, kGib}, GpuProcess{42, kGib}));
  EXPECT_TRUE(gpus[0].processes->empty());
}

TEST(ReadGpus, WhatTheDriverReservesIsNeitherUsedNorFree) {
  const FakeMachine machine(2);
  const GpuStatus gpu = read_gpus(Library())[1];
  EXPECT_EQ(gpu.memory->total_bytes, 16 * kGib);
  EXPECT_EQ(gpu.memory->used_bytes, kGib);
  EXPECT_EQ(gpu.memory->free_bytes, 15 * kGib - kGib / 2);
}

TEST(ReadGpus, AValueThatIsNotSupportedIsAbsentAndTheOthersAreThere) {
  FakeMachine machine(1);
  for (const char* key : {"memory", "power_milliwatts", "processes", "pci"}) {
    machine.gpu(0).erase(key);
  }
  machine.publish();
  const GpuStatus gpu = read_gpus(Library())[0];
  EXPECT_FALSE(gpu.memory || gpu.power_watts || gpu.processes);
  EXPECT_EQ(gpu.pci_bus_id, "");
  EXPECT_EQ(gpu.temperature_celsius, 30u);
  EXPECT_TRUE(gpu.power_limit_watts);
}

TEST(ReadGpus, ReadsListsLongerThanItsFirstRoom) {
  FakeMachine machine(1);
  std::vector<int> pids(1000);
  for (std::size_t i = 0; i < pids.size(); ++i) pids[i] = static_cast<int>(i) + 1;
  machine.set_processes(0, pids);
  EXPECT_EQ(read_gpus(Library())[0].processes->size(), 1000u);
}

TEST(ReadVersions, NamesTheNewestCuda) {
  const FakeMachine machine(1);
  const DriverVersions versions = read_versions(Library());
  EXPECT_EQ(versions.nvml, "13.580.65.06");
  EXPECT_EQ(versions.newest_cuda, "13.0");
}

TEST(Library, ThatIsNotThereIsAFactAndNotAnError) {
  const FakeMachine machine(1);
  FakeMachine::use_library("/nowhere/libnvidia-ml.so.1");
  const Library library;
  EXPECT_FALSE(library.available());
  EXPECT_THAT(library.problem(), HasSubstr("/nowhere/libnvidia-ml.so.1"));
  EXPECT_THAT(library.problem(), HasSubstr("NVIDIA's driver"));
}

TEST(Library, SaysInNvmlsWordsWhyItDoesNotStart) {
  FakeMachine machine(1);
  machine.description["init"] = 9;
  machine.publish();
  EXPECT_THAT(Library().problem(), HasSubstr("'Driver Not Loaded'"));
}

TEST(Library, ThatIsNotNvmlIsSaidSo) {
  const FakeMachine machine(1);
  FakeMachine::use_library("libm.so.6");
  EXPECT_THAT(Library().problem(), HasSubstr("libm.so.6 lacks nvmlInit_v2"));
}

}  // namespace
}  // namespace lockstep::nvml
