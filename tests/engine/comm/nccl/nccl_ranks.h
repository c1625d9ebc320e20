// Ranks as threads, each with a GPU of its own, that meet through make_nccl_communicator.
#pragma once

#include <gmock/gmock.h>

#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "engine/comm/nccl/nccl_group.h"
#include "engine/comm/store/store.h"
#include "engine/core/error.h"
#include "engine/runtime/physical_gpus.h"

namespace lockstep::comm {

// A test that needs this many GPUs is skipped where there are fewer.
#define LOCKSTEP_NEEDS_GPUS(count)                                                             \
  if (runtime::physical_gpus().size() < static_cast<std::size_t>(count)) {                     \
    GTEST_SKIP() << "needs " << (count) << " GPUs, found " << runtime::physical_gpus().size(); \
  }                                                                                            \
  static_assert(true, "")

// Ranks are threads here: nccl_group.h. Before the first call into CUDA.
inline const int kLoadsKernelsEarly = setenv("CUDA_MODULE_LOADING", "EAGER", 1);

// A rank's GPU.
inline Device gpu_of(const Communicator& group) {
  return {DeviceType::cuda, group.rank()};
}

// A call that failed left its error with the device, for whoever waits next: the next test is not
// to find it.
inline void forget_device_errors() {
  for (const runtime::PhysicalGpu& gpu : runtime::physical_gpus()) {
    try {
      Tensor::zeros({1}, DType::float32, Device{DeviceType::cuda, gpu.ordinal}).item();
    } catch (const Error&) {
    }
  }
}

struct NcclRanks {
  double timeout_seconds = 60;
  // Changes the options of one rank.
  std::function<void(NcclGroupOptions&)> adjust = [](NcclGroupOptions&) {};
  std::shared_ptr<Store> store = std::make_shared<MemoryStore>();

  // The error of each rank's fn, or of meeting the others; empty where there was none.
  std::vector<std::optional<Error>> errors_of(int world_size,
                                              const std::function<void(Communicator&)>& fn) const {
    std::vector<std::optional<Error>> errors(static_cast<std::size_t>(world_size));
    std::vector<std::thread> threads;
    for (int rank = 0; rank < world_size; ++rank) {
      threads.emplace_back([&, rank] {
        NcclGroupOptions options;
        options.rank = rank;
        options.world_size = world_size;
        options.store = store;
        options.device = {DeviceType::cuda, rank};
        options.timeout_seconds = timeout_seconds;
        adjust(options);
        try {
          fn(*make_nccl_communicator(options));
        } catch (const Error& error) {
          errors[static_cast<std::size_t>(rank)].emplace(error);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    return errors;
  }

  void run(int world_size, const std::function<void(Communicator&)>& fn) const {
    for (const auto& error : errors_of(world_size, fn)) {
      if (error) ADD_FAILURE() << error->what();
    }
  }
};

}  // namespace lockstep::comm
