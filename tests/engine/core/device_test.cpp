#include "engine/core/device.h"

#include <gtest/gtest.h>

#include "tests/support/expect_error.h"

namespace lockstep {
namespace {

TEST(Device, NamesAreReadBack) {
  for (const Device device : {Device{DeviceType::cpu, 0}, Device{DeviceType::cpu, 63},
                              Device{DeviceType::cuda, 0}, Device{DeviceType::cuda, 3}}) {
    EXPECT_EQ(parse_device(to_string(device)), device);
  }
  EXPECT_EQ(to_string(Device{DeviceType::cuda, 3}), "cuda:3");
  EXPECT_EQ(parse_device("cuda"), (Device{DeviceType::cuda, 0}));
}

TEST(Device, AnythingElseIsQuotedBesideWhatIsAllowed) {
  for (const char* text :
       {"", ":", ":0", "gpu", "gpu:0", "CPU", "cpu:", "cpu:-1", "cpu:+1", "cpu:x", "cpu:1x",
        "cpu: 1", "cpu:1.5", "cpu:1:2", " cpu", "cuda:99999999999999999999"}) {
    testing::expect_error(ErrorCode::Device, fmt::format("'{}'; use cpu, cuda", text),
                          [&] { parse_device(text); });
  }
}

TEST(Device, EmptyNegativeAndRepeatedIdsAreRefused) {
  testing::expect_error(ErrorCode::Device, "empty", [] { devices_of(DeviceType::cpu, {}); });
  testing::expect_error(ErrorCode::Device, "-2 is negative", [] {
    devices_of(DeviceType::cpu, {0, -2});
  });
  testing::expect_error(ErrorCode::Device, "device id 1 appears twice", [] {
    devices_of(DeviceType::cuda, {1, 0, 1});
  });
}

}  // namespace
}  // namespace lockstep
