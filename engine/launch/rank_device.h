// Which device a rank computes on.
#pragma once

#include "engine/core/device.h"
#include "engine/launch/rank_environment.h"

namespace lockstep::launch {

// cuda:LOCAL_RANK or cpu:LOCAL_RANK, of num_devices logical devices that this process has (virtual
// ones count: whoever declares cuda:0*4 has four).
// Throws Error{Device} when the local rank is not below num_devices. It never wraps around: two
// ranks on one GPU by accident would be slow at best.
Device device_of_rank(const RankEnvironment& environment, DeviceType type, int num_devices);

}  // namespace lockstep::launch
