// `lockstep devices` on machines that a fake nvidia-smi shows; what CUDA sees of them is made by
// hand, so that every build shows the same.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdlib.h>
#include <unistd.h>

#include <numeric>

#include "engine/runtime/cpu_use.h"
#include "tests/support/expect_error.h"
#include "tests/support/fake_nvidia_smi/fake_machine.h"
#include "tests/tools/formats_doc.h"
#include "tests/tools/run_lockstep.h"
#include "tools/devices/gpu_list.h"
#include "tools/devices/nvidia_smi.h"

namespace lockstep::tools {
namespace {

using lockstep::testing::fake_uuid;
using lockstep::testing::FakeMachine;
using lockstep::testing::Outcome;
using lockstep::testing::run_command;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

using Json = nlohmann::ordered_json;

// CUDA sees these GPUs of the fake machine, in this order, one logical device on each.
CudaView cuda_of(const std::vector<std::size_t>& gpus) {
  CudaView view;
  for (const std::size_t gpu : gpus) {
    runtime::PhysicalGpu physical;
    physical.ordinal = static_cast<int>(view.gpus.size());
    physical.name = "NVIDIA H200";
    physical.uuid = fake_uuid(gpu);
    view.logical_gpus.push_back(physical.ordinal);
    view.gpus.push_back(physical);
  }
  if (gpus.empty()) view.problem = "this build has no CUDA";
  return view;
}

GpuList list(const CudaView& cuda, const std::optional<std::string>& visible = std::nullopt) {
  return list_gpus(read_nvidia_smi(), cuda, visible);
}

std::vector<std::string> notes_of(const GpuList& list) {
  return list.json["notes"];
}

// --- nvidia-smi may tell everything, or little, or be missing ---

TEST(NvidiaSmi, AValueThatItDoesNotGiveIsNullAndTheOthersAreThere) {
  FakeMachine machine(1);
  for (const char* key : {"memory", "power.draw", "processes", "pci.bus_id"}) {
    machine.gpu(0).erase(key);
  }
  machine.publish();
  const Json gpu = read_nvidia_smi()["gpus"][0];
  for (const char* key : {"memory_free_bytes", "power_watts", "processes", "pci_bus_id"}) {
    EXPECT_TRUE(gpu[key].is_null()) << key;
  }
  EXPECT_EQ(gpu["temperature_celsius"], 30);
  EXPECT_EQ(gpu["power_limit_watts"], 700);
}

TEST(NvidiaSmi, WithoutItsAnswerTheReasonIsGiven) {
  FakeMachine machine(1);
  const auto problem_of = [&](int exit_code, const char* says) {
    machine.description["fails"] = {{"exit_code", exit_code}, {"says", says}};
    machine.publish();
    return read_nvidia_smi()["nvml_problem"];
  };
  EXPECT_EQ(problem_of(9, "NVIDIA-SMI has failed"), "nvidia-smi says 'NVIDIA-SMI has failed'");
  EXPECT_EQ(problem_of(124, ""), "nvidia-smi did not answer within 10 s");
}

constexpr const char* kCorrupted = "WARNING: infoROM is corrupted at gpu 0000:10:00.0";

TEST(NvidiaSmi, AWarningWithAnErrorCodeCostsNoGpu) {
  FakeMachine machine(2);
  machine.set_processes(1, {getpid()});
  for (const int exit_code : {14, 6}) {
    machine.description["warns"] = {{"exit_code", exit_code}, {"says", kCorrupted}};
    machine.publish();
    const GpuList gpus = list(cuda_of({0, 1}));
    EXPECT_EQ(gpus.json["nvml_problem"], nullptr);
    EXPECT_THAT(gpus.device_rows, ElementsAre(0, 1));
    EXPECT_EQ(gpus.json["gpus"][1]["processes"][0]["pid"], getpid());
    EXPECT_THAT(notes_of(gpus), ElementsAre(std::string("nvidia-smi says '") + kCorrupted + "'"));
  }
}

TEST(NvidiaSmi, WithACorruptedInfoRomAnIdleGpuIsKnownToBeIdle) {
  FakeMachine machine(1);
  machine.description["warns"] = {{"exit_code", 14}, {"says", kCorrupted}};
  machine.publish();
  EXPECT_EQ(read_nvidia_smi()["gpus"][0]["processes"], Json::array());
}

TEST(NvidiaSmi, AFieldThatTheDriverDoesNotKnowIsNullAndTheOthersAreThere) {
  FakeMachine machine(2);
  machine.set_processes(0, {getpid()});
  machine.description["unknown_fields"] = {"compute_cap", "enforced.power.limit", "used_memory"};
  machine.publish();
  const Json gpus = read_nvidia_smi()["gpus"];
  ASSERT_EQ(gpus.size(), 2u);
  for (const char* key : {"compute_capability", "power_limit_watts"}) {
    EXPECT_TRUE(gpus[1][key].is_null()) << key;
  }
  EXPECT_EQ(gpus[1]["uuid"], fake_uuid(1));
  EXPECT_EQ(gpus[1]["temperature_celsius"], 31);
  EXPECT_EQ(gpus[1]["power_watts"], 75.5);
  EXPECT_EQ(gpus[0]["processes"][0]["pid"], getpid());
  EXPECT_EQ(gpus[0]["processes"][0]["memory_bytes"], nullptr);
}

TEST(NvidiaSmi, WithoutUuidsTheProcessesAreUnknown) {
  FakeMachine machine(1);
  machine.description["unknown_fields"] = {"uuid"};
  machine.publish();
  EXPECT_EQ(read_nvidia_smi()["gpus"][0]["processes"], nullptr);
}

// --- CUDA_VISIBLE_DEVICES as CUDA reads it ---

VisibleGpus read_visible(const std::optional<std::string>& text) {
  return read_visible_devices(text, {{{"uuid", "GPU-aa00"}},
                                     {{"uuid", "GPU-ab11"}, {"slices", {"MIG-77", "MIG-78"}}},
                                     {{"uuid", "GPU-bb22"}}});
}

TEST(ReadVisibleDevices, TakesNumbersAndBeginningsOfUuidsInTheirOrder) {
  EXPECT_THAT(read_visible(std::nullopt).gpus, ElementsAre(0, 1, 2));
  EXPECT_THAT(read_visible("").gpus, IsEmpty());
  EXPECT_EQ(read_visible("").problem, "");
  EXPECT_THAT(read_visible("2, 0").gpus, ElementsAre(2, 0));
  EXPECT_THAT(read_visible("GPU-bb,GPU-aa00").gpus, ElementsAre(2, 0));
  EXPECT_EQ(read_visible("GPU-bb,GPU-aa00").problem, "");
}

TEST(ReadVisibleDevices, TheFirstEntryThatNamesNoGpuHidesTheRest) {
  const VisibleGpus beyond = read_visible("1,3,0");
  EXPECT_THAT(beyond.gpus, ElementsAre(1));
  EXPECT_EQ(beyond.problem, "there is no GPU '3': CUDA ignores it and what follows");
  EXPECT_THAT(read_visible("0,,1").gpus, ElementsAre(0));
  for (const std::string word : {"-1", "none", "GPU-c", "MIG-12"}) {
    EXPECT_THAT(read_visible(word).gpus, IsEmpty());
    EXPECT_THAT(read_visible(word).problem, HasSubstr("there is no GPU '" + word + "'"));
  }
  const VisibleGpus several = read_visible("GPU-b,GPU-a");
  EXPECT_THAT(several.gpus, ElementsAre(2));
  EXPECT_THAT(several.problem, HasSubstr("several GPUs have UUIDs that begin with 'GPU-a'"));
}

TEST(ReadVisibleDevices, ASliceMakesItsGpuVisibleAndHidesTheRest) {
  const VisibleGpus by_uuid = read_visible("MIG-78,0");
  EXPECT_THAT(by_uuid.gpus, ElementsAre(1));
  EXPECT_THAT(by_uuid.problem, HasSubstr("'MIG-78' is a slice of GPU 1"));
  EXPECT_THAT(read_visible("MIG-GPU-bb22/1/0").gpus, ElementsAre(2));
}

TEST(ReadVisibleDevices, AGpuThatStandsTwiceHidesAll) {
  EXPECT_THAT(read_visible("1,GPU-ab").gpus, IsEmpty());
  EXPECT_THAT(read_visible("1,GPU-ab").problem, HasSubstr("GPU 1 is listed twice"));
}

// --- the list of both ---

TEST(ListGpus, LogicalDevicesAreFoundByUuidOrBusIdWhateverCudasOrder) {
  const FakeMachine machine(3);
  CudaView cuda = cuda_of({2, 0, 1});
  cuda.gpus[2].uuid = "GPU-another";
  cuda.gpus[2].pci_bus_id = "0000:11:00.0";
  const GpuList gpus = list(cuda);
  EXPECT_THAT(gpus.device_rows, ElementsAre(2, 0, 1));
  EXPECT_EQ(gpus.json["gpus"][2]["devices"], Json({"cuda:0"}));
  EXPECT_THAT(notes_of(gpus), IsEmpty());
}

TEST(ListGpus, SeveralLogicalDevicesMayShareAGpu) {
  const FakeMachine machine(2);
  CudaView cuda = cuda_of({0, 1});
  cuda.logical_gpus = {0, 0, 1};
  const std::string table = gpu_table(list(cuda).json);
  EXPECT_THAT(table, HasSubstr("  0  cuda:0,1  NVIDIA H200"));
  EXPECT_THAT(table, HasSubstr("  1  cuda:2    NVIDIA H200"));
}

TEST(ListGpus, SaysWhatCudaVisibleDevicesHides) {
  const FakeMachine machine(4);
  const GpuList gpus = list(cuda_of({1}), "1,9,2");
  EXPECT_EQ(gpus.json["gpus"][0]["visible"], false);
  EXPECT_EQ(gpus.json["gpus"][1]["visible"], true);
  EXPECT_THAT(notes_of(gpus),
              ElementsAre("hidden by CUDA_VISIBLE_DEVICES=1,9,2: GPU 0, GPU 2, GPU 3",
                          "CUDA_VISIBLE_DEVICES: there is no GPU '9': CUDA ignores it and what "
                          "follows"));
}

TEST(ListGpus, ABuildWithoutCudaReadsTheVariableItself) {
  FakeMachine machine(3);
  machine.gpu(1)["slices"] = {"MIG-11aa", "MIG-22bb"};
  machine.publish();
  const GpuList gpus = list(cuda_of({}), "2,0");
  EXPECT_THAT(gpus.device_rows, ElementsAre(2, 0));
  EXPECT_THAT(gpus.json["gpus"][2]["devices"], IsEmpty()) << "this build cannot use it";
  EXPECT_EQ(gpus.json["gpus"][1]["visible"], false);
  EXPECT_THAT(notes_of(list(cuda_of({}), "MIG-22bb")),
              ElementsAre("hidden by CUDA_VISIBLE_DEVICES=MIG-22bb: GPU 0, GPU 2",
                          HasSubstr("'MIG-22bb' is a slice of GPU 1")));
}

TEST(ListGpus, WithoutNvidiaSmiShowsWhatCudaTells) {
  const FakeMachine machine(2);
  FakeMachine::hide_nvidia_smi();
  const GpuList gpus = list(cuda_of({0, 1}));
  EXPECT_THAT(gpus.json["nvml_problem"].get<std::string>(), HasSubstr("no nvidia-smi in PATH"));
  const std::string table = gpu_table(gpus.json);
  EXPECT_THAT(table, HasSubstr("  0  cuda:0  NVIDIA H200      0.0 "));
  EXPECT_THAT(table, HasSubstr("\n  0         -         -"));
  EXPECT_THAT(table, HasSubstr("processes unknown: GPU 0, 1"));
}

TEST(GpuTable, AGoldenTableOfTwoGpus) {
  FakeMachine machine(2);
  machine.gpu(1).erase("power.draw");
  machine.description["reads"][1][0] = "NS";
  machine.publish();
  EXPECT_EQ(gpu_table(list(cuda_of({0, 1})).json),
            R"(GPU  device  name         compute  total MiB
  0  cuda:0  NVIDIA H200      9.0      16384
  1  cuda:1  NVIDIA H200      9.0      16384

GPU  used MiB  free MiB  util  temp       power
  0         0     15872   1 %  30 C  75 / 700 W
  1      1024     14848   2 %  31 C           -

no process has a compute context on a GPU

       GPU 0  GPU 1
GPU 0  X      NV18 *
GPU 1  NV18   X
NV#   that many bonded NVLinks
*     the row's GPU reads the column's memory itself, not through the host
)");
}

TEST(GpuTable, NamesProcessesWithUserAndMemory) {
  FakeMachine machine(1);
  machine.set_processes(0, {getpid(), 1 << 30});
  const std::string table = gpu_table(list(cuda_of({0})).json);
  EXPECT_THAT(table, HasSubstr("used MiB  process\n"));
  const std::string command = runtime::read_process_file(getpid(), "cmdline");
  EXPECT_THAT(table, HasSubstr("  " + command.substr(0, 20))) << "the table may cut a long path";
  EXPECT_THAT(table, HasSubstr("1073741824  -         1024  (not seen from here)"));
  EXPECT_THAT(table, Not(HasSubstr("memory itself"))) << "one GPU reaches nobody";
}

TEST(GpuTable, EightAndSixteenGpusFitIntoEightyColumns) {
  for (const int count : {8, 16}) {
    const FakeMachine machine(count);
    std::vector<std::size_t> gpus(static_cast<std::size_t>(count));
    std::iota(gpus.begin(), gpus.end(), std::size_t{0});
    testing::expect_narrow(gpu_table(list(cuda_of(gpus)).json));
  }
}

// --- the command ---

TEST(Devices, ListsTheMachineAndWritesItAsJson) {
  FakeMachine machine(2);
  machine.set_processes(0, {getpid()});
  machine.gpu(1)["slices"] = {"MIG-11aa"};
  machine.publish();
  const Outcome outcome = run_command("devices --json -");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("cpu:0 to cpu:63"));
  EXPECT_THAT(outcome.err, HasSubstr("580.65.06, for CUDA up to 13.0; NVML 580.65"));
  const nlohmann::json json = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(json["schema"], "lockstep.devices/1");
  EXPECT_EQ(json["driver"], "580.65.06");
  EXPECT_EQ(json["cuda_visible_devices"], nullptr);
  const nlohmann::json& gpu = json["gpus"][0];
  EXPECT_EQ(gpu["name"], "NVIDIA H200");
  EXPECT_EQ(gpu["uuid"], fake_uuid(0));
  EXPECT_EQ(gpu["pci_bus_id"], "00000000:10:00.0");
  EXPECT_EQ(gpu["compute_capability"], "9.0");
  EXPECT_EQ(gpu["memory_total_bytes"], std::size_t{16} << 30);
  EXPECT_EQ(gpu["utilization_percent"], 1);
  EXPECT_EQ(gpu["processes"][0]["pid"], getpid());
  EXPECT_THAT(gpu["processes"][0]["command"].get<std::string>(), HasSubstr("devices_tests"));
  EXPECT_EQ(json["links"][0]["nvlinks"], 18);
  EXPECT_EQ(json["links"][0]["peer_access"], true);
  lockstep::testing::Fields fields;
  lockstep::testing::collect_fields(json, fields);
  lockstep::testing::expect_documented("lockstep.devices/1", fields);
}

TEST(Devices, ShowsTheGpusBesideAWarningAndAnUnknownField) {
  FakeMachine machine(2);
  machine.description["warns"] = {{"exit_code", 14}, {"says", kCorrupted}};
  machine.description["unknown_fields"] = {"temperature.gpu"};
  machine.publish();
  const Outcome outcome = run_command("devices");
  lockstep::testing::expect_success(outcome);
  EXPECT_THAT(outcome.out, HasSubstr("NVIDIA H200      9.0      16384"));
  EXPECT_THAT(outcome.out, HasSubstr("  1      1024     14848   2 %     -  76 / 700 W"));
  EXPECT_THAT(outcome.out, HasSubstr("nvidia-smi says 'WARNING: infoROM is corrupted at gpu"));
}

TEST(Devices, WithoutNvidiaSmiSaysSoAndSucceeds) {
  const FakeMachine machine(1);
  FakeMachine::hide_nvidia_smi();
  const Outcome outcome = run_command("devices");
  lockstep::testing::expect_success(outcome);
  EXPECT_THAT(outcome.out, HasSubstr("driver no nvidia-smi in PATH"));
}

// The variable means other GPUs to a CUDA that sees this machine's own.
TEST(Devices, WithoutCudaShowsWhatIsThereAndWhyItCannotBeUsed) {
  if (!runtime::physical_gpus().empty()) GTEST_SKIP() << "this machine has GPUs of its own";
  const FakeMachine machine(2);
  ::setenv("CUDA_VISIBLE_DEVICES", "1", 1);
  const Outcome outcome = run_command("devices");
  lockstep::testing::expect_success(outcome);
  EXPECT_THAT(outcome.out, HasSubstr("cuda   none: " + runtime::no_gpu_reason()));
  EXPECT_THAT(outcome.out, HasSubstr("  1  -       NVIDIA H200"));
  EXPECT_THAT(outcome.out, HasSubstr("hidden by CUDA_VISIBLE_DEVICES=1: GPU 0"));
}

// --- devices --free ---

// No process, little memory in use.
void make_idle(FakeMachine& machine, std::size_t index) {
  machine.gpu(index)["memory"]["used"] = 0;
  machine.publish();
}

TEST(FreeDevices, AreIdleGpusTheOnesWithTheMostFreeMemoryFirst) {
  FakeMachine machine(4);
  for (std::size_t i = 0; i < 4; ++i) make_idle(machine, i);
  machine.gpu(0)["memory"]["used"] = std::size_t{100} << 20;
  machine.set_processes(1, {1 << 30});
  const GpuList gpus = list(cuda_of({3, 2, 1, 0}));
  EXPECT_THAT(idle_gpus(gpus, 2), ElementsAre(fake_uuid(2), fake_uuid(3)));
  EXPECT_THAT(idle_gpus(gpus, 3), ElementsAre(fake_uuid(2), fake_uuid(3), fake_uuid(0)));
}

TEST(FreeDevices, WhatKeepsThemBusyIsSaid) {
  FakeMachine machine(4);
  machine.set_processes(0, {1 << 30, 1 << 29});
  machine.gpu(2)["memory"]["used"] = std::size_t{600} << 20;
  machine.gpu(3)["memory"]["used"] = 0;
  machine.gpu(3)["utilization.gpu"] = 40;
  make_idle(machine, 1);
  lockstep::testing::expect_error(
      ErrorCode::Device,
      "[--free] asks for 2 idle GPUs, and there is 1: GPU 0 is used by 2 processes; GPU 2 has 600 "
      "MiB in use; GPU 3 is 40 % utilised",
      [&] {
        idle_gpus(list(cuda_of({0, 1, 2, 3})), 2);
      });
}

TEST(FreeDevices, AFigureThatAGpuDoesNotTellIsNotHeldAgainstIt) {
  FakeMachine machine(1);
  for (const char* key : {"memory", "utilization.gpu", "processes"}) machine.gpu(0).erase(key);
  machine.publish();
  EXPECT_THAT(idle_gpus(list(cuda_of({0})), 1), ElementsAre(fake_uuid(0)));
}

TEST(FreeDevices, AreAmongTheVisibleOnesAndNeverAGpuOfWhichASliceIsVisible) {
  FakeMachine machine(2);
  make_idle(machine, 1);
  EXPECT_THAT(idle_gpus(list(cuda_of({}), "1"), 1), ElementsAre(fake_uuid(1)));
  lockstep::testing::expect_error(
      ErrorCode::Device,
      "[--free] asks for 2 idle GPUs, and there is 1: hidden by CUDA_VISIBLE_DEVICES=1: GPU 0",
      [&] { idle_gpus(list(cuda_of({}), "1"), 2); });
  const std::string slice = "MIG-" + fake_uuid(1) + "/1/0";
  lockstep::testing::expect_error(ErrorCode::Device, "asks for 1 idle GPU, and there are 0",
                                  [&] { idle_gpus(list(cuda_of({}), slice), 1); });
}

// The command also asks CUDA, whose GPUs are not the fake machine's.
TEST(FreeDevices, ArePrintedInTheFormOfCudaVisibleDevices) {
  if (!runtime::physical_gpus().empty()) GTEST_SKIP() << "this machine has GPUs of its own";
  using lockstep::testing::expect_rejected;
  FakeMachine machine(3);
  make_idle(machine, 2);
  const Outcome outcome = run_command("devices --free 2");
  lockstep::testing::expect_success(outcome);
  EXPECT_EQ(outcome.out, fake_uuid(0) + "," + fake_uuid(2) + "\n");
  EXPECT_EQ(outcome.err, "");
  const Outcome too_few = run_command("devices --free 3");
  expect_rejected(too_few, 1,
                  {"[--free] asks for 3 idle GPUs, and there are 2: GPU 1 has 1024 MiB in use"});
  EXPECT_EQ(too_few.out, "");
  FakeMachine::hide_nvidia_smi();
  expect_rejected(run_command("devices --free 1"), 1,
                  {"[--free] cannot tell which GPUs are idle: no nvidia-smi in PATH"});
}

}  // namespace
}  // namespace lockstep::tools
