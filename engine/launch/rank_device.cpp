#include "engine/launch/rank_device.h"

#include "engine/core/error.h"

namespace lockstep::launch {

Device device_of_rank(const RankEnvironment& environment, DeviceType type, int num_devices) {
  const int local_rank = environment.local_rank;
  if (local_rank < num_devices) return {type, local_rank};
  const std::string_view name = to_string(type);
  require(num_devices > 0, ErrorCode::Device, "device_of_rank",
          "rank {} should compute on {}:{}, but this process sees no {} device", environment.rank,
          name, local_rank, name);
  fail(ErrorCode::Device, "device_of_rank",
       "rank {} has local rank {} and should compute on {}:{}, but this process sees {} {} "
       "device{}; start at most {} on this host{}",
       environment.rank, local_rank, name, local_rank, num_devices, name,
       num_devices == 1 ? "" : "s", num_devices,
       type == DeviceType::cuda ? ", show it more (CUDA_VISIBLE_DEVICES, srun --gpu-bind=none), or "
                                  "declare virtual ones: --virtual-devices cuda:0*N"
                                : "");
}

}  // namespace lockstep::launch
