// `lockstep devices` on machines that a fake nvidia-smi shows; what CUDA sees of them is made by
// hand, so that every build shows the same.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdlib.h>
#include <unistd.h>

#include <sstream>

#include "tests/support/expect_error.h"
#include "tests/support/fake_nvidia_smi/fake_machine.h"
#include "tests/tools/formats_doc.h"
#include "tests/tools/run_lockstep.h"
#include "tools/devices/gpu_list.h"
#include "tools/devices/gpu_table.h"

namespace lockstep::tools {
namespace {

using lockstep::testing::Arguments;
using lockstep::testing::fake_uuid;
using lockstep::testing::FakeMachine;
using lockstep::testing::Outcome;
using lockstep::testing::run_lockstep;
using lockstep::testing::words;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

using Visibility = GpuRow::Visibility;

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
  return list_gpus(read_machine(), cuda, visible);
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

TEST(ListGpus, LogicalDevicesAreFoundByUuidWhateverCudasOrder) {
  const FakeMachine machine(3);
  const GpuList gpus = list(cuda_of({2, 0, 1}));
  EXPECT_THAT(gpus.device_rows, ElementsAre(2, 0, 1));
  EXPECT_THAT(gpus.rows[2].logical_ids, ElementsAre(0));
  EXPECT_THAT(gpus.notes, IsEmpty());
}

TEST(ListGpus, ByBusIdWhereTheUuidDiffers) {
  const FakeMachine machine(2);
  CudaView cuda = cuda_of({0});
  cuda.gpus[0].uuid = "GPU-another";
  cuda.gpus[0].pci_bus_id = "0000:11:00.0";
  const GpuList gpus = list(cuda);
  EXPECT_THAT(gpus.device_rows, ElementsAre(1));
}

TEST(ListGpus, SeveralLogicalDevicesMayShareAGpu) {
  const FakeMachine machine(2);
  CudaView cuda = cuda_of({0, 1});
  cuda.logical_gpus = {0, 0, 0, 1};
  const GpuList gpus = list(cuda);
  EXPECT_THAT(gpus.rows[0].logical_ids, ElementsAre(0, 1, 2));
  EXPECT_THAT(gpu_table(gpus), HasSubstr("  0  cuda:0-2  NVIDIA H200"));
  EXPECT_THAT(gpu_table(gpus), HasSubstr("  1  cuda:3    NVIDIA H200"));
}

TEST(ListGpus, SaysWhatCudaVisibleDevicesHides) {
  const FakeMachine machine(4);
  const GpuList gpus = list(cuda_of({1}), "1,9,2");
  EXPECT_EQ(gpus.rows[0].visibility, Visibility::hidden);
  EXPECT_EQ(gpus.rows[1].visibility, Visibility::visible);
  EXPECT_THAT(gpus.notes,
              ElementsAre("hidden by CUDA_VISIBLE_DEVICES=1,9,2: GPU 0, GPU 2, GPU 3",
                          "CUDA_VISIBLE_DEVICES: there is no GPU 9: CUDA ignores it and what "
                          "follows"));
}

TEST(ListGpus, ABuildWithoutCudaReadsTheVariableItself) {
  const FakeMachine machine(3);
  const GpuList gpus = list(cuda_of({}), "2,0");
  EXPECT_THAT(gpus.device_rows, ElementsAre(2, 0));
  EXPECT_THAT(gpus.rows[2].logical_ids, IsEmpty()) << "this build cannot use it";
  EXPECT_EQ(gpus.rows[1].visibility, Visibility::hidden);
}

TEST(ListGpus, ASliceInTheVariableShowsItsGpu) {
  FakeMachine machine(2);
  machine.gpu(1)["slices"] = {"MIG-11aa", "MIG-22bb"};
  machine.publish();
  const GpuList gpus = list(cuda_of({}), "MIG-22bb");
  EXPECT_EQ(gpus.rows[0].visibility, Visibility::hidden);
  EXPECT_EQ(gpus.rows[1].visibility, Visibility::visible);
  EXPECT_THAT(gpus.notes, ElementsAre("hidden by CUDA_VISIBLE_DEVICES=MIG-22bb: GPU 0",
                                      HasSubstr("'MIG-22bb' is a slice of GPU 1")));
}

TEST(ListGpus, WithoutNvidiaSmiShowsWhatCudaTells) {
  const FakeMachine machine(2);
  FakeMachine::hide_nvidia_smi();
  CudaView cuda = cuda_of({0, 1});
  cuda.peer_access = {{true, true}, {false, true}};
  const GpuList gpus = list(cuda);
  EXPECT_THAT(gpus.machine.problem, HasSubstr("no nvidia-smi"));
  ASSERT_EQ(gpus.rows.size(), 2u);
  const std::string table = gpu_table(gpus);
  EXPECT_THAT(table, HasSubstr("  0  cuda:0  NVIDIA H200      0.0         -         -"));
  EXPECT_THAT(table, HasSubstr("processes unknown: GPU 0, 1"));
  EXPECT_THAT(table, HasSubstr("GPU 0  X      - peer\nGPU 1  -      X\n"));
}

TEST(GpuTable, AGoldenTableOfTwoGpus) {
  FakeMachine machine(2);
  machine.gpu(1).erase("power.draw");
  machine.description["reads"][1][0] = "NS";
  machine.publish();
  EXPECT_EQ(
      gpu_table(list(cuda_of({0, 1}))),
      R"(GPU  device  name         compute  used MiB  free MiB  total MiB  util  temp       power
  0  cuda:0  NVIDIA H200      9.0         0     15872      16384   1 %  30 C  75 / 700 W
  1  cuda:1  NVIDIA H200      9.0      1024     14848      16384   2 %  31 C           -

no process has a compute context on a GPU

       GPU 0  GPU 1
GPU 0  X      NV18 peer
GPU 1  NV18   X
NV#   that many bonded NVLinks
peer  the row's GPU reads the column's memory itself; without it copies go through the host
)");
}

TEST(GpuTable, NamesProcessesWithUserAndMemory) {
  FakeMachine machine(1);
  machine.set_processes(0, {getpid(), 1 << 30});
  const std::string table = gpu_table(list(cuda_of({0})));
  EXPECT_THAT(table, HasSubstr("used MiB  process\n"));
  EXPECT_THAT(table, HasSubstr("devices_tests"));
  EXPECT_THAT(table, HasSubstr("1073741824  -         1024  (not seen from here)"));
  EXPECT_THAT(table, Not(HasSubstr("peer"))) << "one GPU reaches nobody";
}

TEST(GpuTable, EightGpusFitIntoALine) {
  const FakeMachine machine(8);
  const std::string table = gpu_table(list(cuda_of({0, 1, 2, 3, 4, 5, 6, 7})));
  for (const std::string& line : lines_of(table)) EXPECT_LE(line.size(), 110u) << line;
}

TEST(PickDevices, AreThoseWithTheMostFreeMemory) {
  FakeMachine machine(4);
  machine.gpu(0)["memory"]["used"] = 9000000000;
  machine.publish();
  EXPECT_THAT(pick_devices(list(cuda_of({3, 2, 1, 0})), 2), ElementsAre(2, 1));
}

TEST(PickDevices, SmallerIdsComeFirstAmongEquals) {
  const FakeMachine machine(1);
  CudaView cuda = cuda_of({0});
  cuda.logical_gpus = {0, 0, 0};
  EXPECT_THAT(pick_devices(list(cuda), 2), ElementsAre(0, 1));
}

TEST(PickDevices, FewerThanAskedForIsAnErrorThatSaysWhatHidesThem) {
  const FakeMachine machine(2);
  const GpuList gpus = list(cuda_of({1}), "1");
  lockstep::testing::expect_error(
      ErrorCode::Usage,
      "[--free] asks for 2 devices, and there is 1; hidden by CUDA_VISIBLE_DEVICES=1: GPU 0",
      [&] { pick_devices(gpus, 2); });
}

TEST(PickDevices, AValueThatIsNotToldIsAnError) {
  FakeMachine machine(2);
  machine.gpu(1).erase("memory");
  machine.publish();
  const GpuList gpus = list(cuda_of({0, 1}));
  lockstep::testing::expect_error(ErrorCode::Device, "GPU 1 does not report its free memory",
                                  [&] { pick_devices(gpus, 1); });
}

TEST(Devices, ListsTheMachineAndWritesItAsJson) {
  FakeMachine machine(2);
  machine.set_processes(0, {getpid()});
  const Outcome outcome = run_lockstep(words("devices --json -"));
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
  EXPECT_EQ(gpu["compute_capability"], "9.0");
  EXPECT_EQ(gpu["memory_total_bytes"], std::size_t{16} << 30);
  EXPECT_EQ(gpu["processes"][0]["pid"], getpid());
  EXPECT_EQ(json["links"][0]["nvlinks"], 18);
  EXPECT_EQ(json["links"][0]["peer_access"], true);
  lockstep::testing::Fields fields;
  lockstep::testing::collect_fields(json, fields);
  lockstep::testing::expect_documented("lockstep.devices/1", fields);
}

TEST(Devices, WithoutNvidiaSmiSaysSoAndSucceeds) {
  const FakeMachine machine(1);
  FakeMachine::hide_nvidia_smi();
  const Outcome outcome = run_lockstep({"devices"});
  lockstep::testing::expect_success(outcome);
  EXPECT_THAT(outcome.out, HasSubstr("driver no nvidia-smi in PATH"));
}

// The variable means other GPUs to a CUDA that sees this machine's own.
class DevicesWithoutCuda : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!runtime::physical_gpus().empty()) GTEST_SKIP() << "this machine has GPUs of its own";
  }
};

TEST_F(DevicesWithoutCuda, ShowWhatIsThereAndWhyItCannotBeUsed) {
  const FakeMachine machine(2);
  ::setenv("CUDA_VISIBLE_DEVICES", "1", 1);
  const Outcome outcome = run_lockstep({"devices"});
  lockstep::testing::expect_success(outcome);
  EXPECT_THAT(outcome.out, HasSubstr("cuda   none: " + runtime::no_gpu_reason()));
  EXPECT_THAT(outcome.out, HasSubstr("  1  -       NVIDIA H200"));
  EXPECT_THAT(outcome.out, HasSubstr("hidden by CUDA_VISIBLE_DEVICES=1: GPU 0"));
}

TEST_F(DevicesWithoutCuda, FreePrintsIdsAloneAndSaysWhatTheyCount) {
  const FakeMachine machine(3);
  const Outcome outcome = run_lockstep(words("devices --free 2"));
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(outcome.out, "0,1\n");
  EXPECT_THAT(outcome.err, HasSubstr("CUDA_DEVICE_ORDER=PCI_BUS_ID"));
}

TEST(Devices, RejectsWordsThatItDoesNotTake) {
  const FakeMachine machine(2);
  using lockstep::testing::expect_rejected;
  expect_rejected(run_lockstep(words("devices --free 99")), 2, {"[--free] asks for 99 devices"});
  expect_rejected(run_lockstep(words("devices --free 0")), 2, {"[--free] must be at least 1"});
  expect_rejected(run_lockstep(words("devices --json /nowhere/list.json")), 1, {"[--json]"});
}

}  // namespace
}  // namespace lockstep::tools
