#include "engine/core/device.h"

#include <gtest/gtest.h>

#include <unordered_set>

#include "tests/support/expect_error.h"

namespace lockstep {
namespace {

TEST(Device, TheDefaultIsTheFirstCpu) {
  EXPECT_EQ(Device{}, (Device{DeviceType::cpu, 0}));
}

TEST(Device, NamesAreReadBack) {
  for (const Device device : {Device{DeviceType::cpu, 0}, Device{DeviceType::cpu, 63},
                              Device{DeviceType::cuda, 0}, Device{DeviceType::cuda, 3}}) {
    EXPECT_EQ(parse_device(to_string(device)), device);
  }
  EXPECT_EQ(to_string(Device{DeviceType::cuda, 3}), "cuda:3");
}

TEST(Device, ATypeAloneMeansIndexZero) {
  EXPECT_EQ(parse_device("cpu"), (Device{DeviceType::cpu, 0}));
  EXPECT_EQ(parse_device("cuda"), (Device{DeviceType::cuda, 0}));
}

TEST(Device, AnythingElseIsAnErrorThatQuotesItAndSaysWhatIsAllowed) {
  for (const char* text :
       {"", ":", ":0", "gpu", "gpu:0", "CPU", "cpu:", "cpu:-1", "cpu:+1", "cpu:x", "cpu:1x",
        "cpu: 1", "cpu:1.5", "cpu:1:2", " cpu", "cuda:99999999999999999999"}) {
    testing::expect_error(ErrorCode::Device, fmt::format("'{}'; use cpu, cuda", text),
                          [&] { parse_device(text); });
  }
}

TEST(Device, AListOfIdsKeepsItsOrder) {
  EXPECT_EQ(devices_of(DeviceType::cpu, {3, 0}),
            (std::vector<Device>{Device{DeviceType::cpu, 3}, Device{DeviceType::cpu, 0}}));
}

TEST(Device, EmptyNegativeAndRepeatedIdsAreErrorsThatNameTheId) {
  testing::expect_error(ErrorCode::Device, "empty", [] { devices_of(DeviceType::cpu, {}); });
  testing::expect_error(ErrorCode::Device, "-2 is negative", [] {
    devices_of(DeviceType::cpu, {0, -2});
  });
  testing::expect_error(ErrorCode::Device, "device id 1 stands twice", [] {
    devices_of(DeviceType::cuda, {1, 0, 1});
  });
}

TEST(Device, DevicesAreKeysOfOrderedAndHashedContainers) {
  const Device first{DeviceType::cpu, 1};
  const Device second{DeviceType::cuda, 0};
  EXPECT_LT(first, second);
  EXPECT_LT((Device{DeviceType::cpu, 0}), first);
  EXPECT_EQ((std::unordered_set<Device>{first, second, first}.size()), 2u);
}

}  // namespace
}  // namespace lockstep
