// CUDA_VISIBLE_DEVICES as CUDA reads it.
#include "tools/devices/gpu_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep::tools {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const std::vector<GpuUuids> kUuids = {
    {"GPU-aa00"}, {"GPU-ab11", {"MIG-77", "MIG-78"}}, {"GPU-bb22"}};

TEST(ReadVisibleDevices, UnsetShowsAllAndEmptyNone) {
  EXPECT_THAT(read_visible_devices(std::nullopt, kUuids).gpus, ElementsAre(0, 1, 2));
  EXPECT_THAT(read_visible_devices("", kUuids).gpus, IsEmpty());
  EXPECT_THAT(read_visible_devices("", kUuids).problems, IsEmpty());
}

TEST(ReadVisibleDevices, NumbersDecideTheOrderToo) {
  const VisibleGpus visible = read_visible_devices("2, 0", kUuids);
  EXPECT_THAT(visible.gpus, ElementsAre(2, 0));
  EXPECT_THAT(visible.problems, IsEmpty());
}

TEST(ReadVisibleDevices, TakesBeginningsOfUuidsThatFitOneGpu) {
  EXPECT_THAT(read_visible_devices("GPU-bb,GPU-aa00", kUuids).gpus, ElementsAre(2, 0));
  const VisibleGpus several = read_visible_devices("GPU-b,GPU-a", kUuids);
  EXPECT_THAT(several.gpus, ElementsAre(2));
  EXPECT_THAT(several.problems, ElementsAre(HasSubstr("'GPU-a' matches several GPUs")));
  EXPECT_THAT(read_visible_devices("GPU-c", kUuids).problems,
              ElementsAre(HasSubstr("no GPU has the UUID 'GPU-c'")));
}

TEST(ReadVisibleDevices, TheFirstEntryThatNamesNoGpuHidesTheRest) {
  const VisibleGpus beyond = read_visible_devices("1,3,0", kUuids);
  EXPECT_THAT(beyond.gpus, ElementsAre(1));
  EXPECT_THAT(beyond.problems, ElementsAre("there is no GPU 3: CUDA ignores it and what follows"));
  EXPECT_THAT(read_visible_devices("-1", kUuids).gpus, IsEmpty());
  EXPECT_THAT(read_visible_devices("none", kUuids).problems, ElementsAre(HasSubstr("'none'")));
  EXPECT_THAT(read_visible_devices("0,,1", kUuids).gpus, ElementsAre(0));
  EXPECT_THAT(read_visible_devices("MIG-12", kUuids).problems, ElementsAre(HasSubstr("'MIG-12'")));
}

TEST(ReadVisibleDevices, ASliceMakesItsGpuVisibleAndHidesTheRest) {
  const VisibleGpus by_uuid = read_visible_devices("MIG-78,0", kUuids);
  EXPECT_THAT(by_uuid.gpus, ElementsAre(1));
  EXPECT_THAT(by_uuid.problems, ElementsAre(HasSubstr("'MIG-78' is a slice of GPU 1")));
  EXPECT_THAT(read_visible_devices("MIG-GPU-bb22/1/0", kUuids).gpus, ElementsAre(2));
}

TEST(ReadVisibleDevices, AGpuThatStandsTwiceHidesAll) {
  const VisibleGpus twice = read_visible_devices("1,GPU-ab", kUuids);
  EXPECT_THAT(twice.gpus, IsEmpty());
  EXPECT_THAT(twice.problems, ElementsAre(HasSubstr("GPU 1 is listed twice")));
}

}  // namespace
}  // namespace lockstep::tools
