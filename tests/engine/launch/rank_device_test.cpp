#include "engine/launch/rank_device.h"

#include <gtest/gtest.h>

#include "tests/support/expect_error.h"

namespace lockstep::launch {
namespace {

RankEnvironment rank_with_local_rank(int local_rank) {
  RankEnvironment environment;
  environment.rank = 10 + local_rank;
  environment.local_rank = local_rank;
  return environment;
}

TEST(RankDevice, IsTheOneOfTheLocalRank) {
  EXPECT_EQ(to_string(device_of_rank(rank_with_local_rank(3), DeviceType::cuda, 4)), "cuda:3");
  EXPECT_EQ(to_string(device_of_rank(rank_with_local_rank(0), DeviceType::cpu, 64)), "cpu:0");
}

TEST(RankDevice, NeverWrapsAround) {
  testing::expect_error(ErrorCode::Device, "rank 14 has local rank 4",
                        [] { device_of_rank(rank_with_local_rank(4), DeviceType::cuda, 4); });
  testing::expect_error(ErrorCode::Device, "--virtual-devices",
                        [] { device_of_rank(rank_with_local_rank(1), DeviceType::cuda, 1); });
  testing::expect_error(ErrorCode::Device, "sees no cuda device",
                        [] { device_of_rank(rank_with_local_rank(0), DeviceType::cuda, 0); });
}

}  // namespace
}  // namespace lockstep::launch
